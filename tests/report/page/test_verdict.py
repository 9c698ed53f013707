"""The verdict: its words follow from the record, and its three kinds of numbers stay apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.report.page.content import Content, read_content
from nas.report.page.operators import operators_of
from nas.report.page.verdict import verdict_of
from nas.store import open_run


def read(folder: Path) -> Content:
    with open_run(folder) as run:
        return read_content(run, "label", run.name)


def shifted(content: Content, title: str, by: float) -> Content:
    """The content with fresh results of all but standard attention moved."""

    def moved(one: Any) -> Any:
        metrics = {name: value + by for name, value in one.evaluation.metrics.items()}
        return dataclasses.replace(
            one, evaluation=dataclasses.replace(one.evaluation, metrics=metrics)
        )

    own = {
        key: found if key == content.standard else tuple(map(moved, found))
        for key, found in content.fresh[title].items()
    }
    return dataclasses.replace(content, fresh={**content.fresh, title: own})


def test_example_says_what_readme_says(content: Content) -> None:
    """README's table of `nas confirm example` has these numbers."""
    found = verdict_of(content)
    said = " ".join(found.sentences)
    assert found.headline == (
        "06ce36bb leads standard attention by 3.0 ± 0.8 points; trained longer, the lead is gone."
    )
    assert "39.2 ± 0.5 % over 5 fresh seeds, standard attention 36.2 ± 0.4 %" in said
    assert "52.7 ± 0.2 %, −0.1 ± 0.3 points" in said
    assert "scored it 40.8 % and believed 40.2 ± 0.6 %" in said
    assert ("39.2 ± 0.5 %", "accuracy, fresh seeds", "fresh") in found.figures
    assert ("0.79 ×", "MACs of mha", "cost") in found.figures


@pytest.mark.parametrize(
    ("fresh", "long", "headline"),
    [
        (0.0, 0.1, "leads standard attention by 3.0 ± 0.8 points; trained longer, the lead holds."),
        (0.0, -0.1, "; trained longer, it falls behind."),
        (-0.03, 0.0, "is level with standard attention at 0.79 of its MACs."),
        (-0.1, 0.0, "falls behind standard attention by 7.0 ± 0.8 points."),
    ],
)
def test_words_follow_the_fresh_numbers(
    content: Content, fresh: float, long: float, headline: str
) -> None:
    changed = shifted(shifted(content, "fresh", fresh), "long", long)
    assert verdict_of(changed).headline.endswith(headline)


def test_what_is_not_confirmed_is_said_to_be_so(content: Content) -> None:
    found = verdict_of(dataclasses.replace(content, fresh={}, confirmations=()))
    assert found.headline == "06ce36bb is the best so far, and not yet confirmed."
    assert "`nas confirm example`" in found.sentences[1]
    assert found.figures[0] == ("40.2 ± 0.6 %", "accuracy, estimate", "estimate")


def test_run_without_a_front_has_a_verdict(make_run: Callable[..., Path], tmp_path: Path) -> None:
    whole = read(make_run(tmp_path, generations=1))
    assert "no front" in verdict_of(dataclasses.replace(whole, members=())).headline


def test_costs_alone_have_a_verdict(recorded_run: Path) -> None:
    whole = read(recorded_run)
    costs = tuple(o for o in whole.setup.objectives if not o.is_metric)
    setup = dataclasses.replace(whole.setup, objectives=costs)
    found = verdict_of(dataclasses.replace(whole, setup=setup))
    assert found.sentences[0].startswith("The search's best by ")


def test_operators_account_for_every_mechanism(content: Content) -> None:
    found = operators_of(content)
    assert sum(one.trained for one in found) == len(content.trained) == 279
    assert sum(one.stayed for one in found) == len(content.members)
    assert all(one.stayed <= one.joined <= one.trained for one in found)
    whole = sum(one.core_seconds for one in found)
    assert whole == pytest.approx(content.core_seconds)
    assert {one.name: one.trained for one in found}["crossover"] == 167
    assert next(one for one in found if one.name == "sample").gain is None


def test_gain_is_over_the_better_parent(content: Content) -> None:
    """Of the one `see` among the front's ancestors that has a parent, by hand."""
    one = next(o for o in operators_of(content) if o.name == "remove")
    children = [m for m in content.trained.values() if m.operator == "remove"]

    def accuracy(mechanism: Any) -> float:
        return float(mechanism.result.objectives["accuracy"])

    gains = [
        accuracy(child) - max(accuracy(content.by_digest[p]) for p in child.parents)
        for child in children
    ]
    assert one.gain is not None
    assert one.gain[0] == pytest.approx(sum(gains) / len(gains))
