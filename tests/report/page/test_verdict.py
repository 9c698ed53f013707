"""The verdict: its words follow from the record, and its three kinds of numbers stay apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nas.report.page.search import operators_of
from nas.report.page.verdict import verdict_of
from nas.report.run_view import FRESH, RunView
from nas.store import open_run


def read(folder: Path) -> RunView:
    with open_run(folder) as run:
        return RunView.read(run, "label", run.name)


def led(content: RunView, title: str, gains: Sequence[float]) -> RunView:
    """The content with as many fresh results, which lead standard attention's by so much."""
    base = content.values(title, str(content.standard_key))
    return changed(content, title, len(gains), lambda one: base[one.repeat] + gains[one.repeat])


def shifted(content: RunView, title: str, by: float) -> RunView:
    """The content with fresh results of all but standard attention moved."""
    return changed(content, title, 99, lambda one: one.evaluation.metrics["accuracy"] + by)


def changed(content: RunView, title: str, seeds: int, value: Callable[[Any], float]) -> RunView:
    """The content with other fresh results of all but standard attention."""

    titles = {FRESH[part]: part for part in FRESH}

    def moved(one: Any) -> Any:
        if one.part != titles[title] or one.key == content.standard_key:
            return one
        metrics = {**one.evaluation.metrics, "accuracy": value(one)}
        return dataclasses.replace(
            one, evaluation=dataclasses.replace(one.evaluation, metrics=metrics)
        )

    kept = [c for c in content.confirmations if c.part != titles[title] or c.repeat < seeds]
    return dataclasses.replace(content, confirmations=tuple(map(moved, kept)))


def minimised(content: RunView) -> RunView:
    """The content as if accuracy counted errors."""
    first, *others = content.setup.objectives
    objectives = (dataclasses.replace(first, direction="min"), *others)
    return dataclasses.replace(
        content, setup=dataclasses.replace(content.setup, objectives=objectives)
    )


def test_example_says_what_readme_says(content: RunView) -> None:
    """README's table of `nas confirm example` has these numbers."""
    found = verdict_of(content)
    said = " ".join(found.sentences)
    assert found.headline == (
        "06ce36bb leads standard attention by 3.0 ± 0.8 points; "
        "trained longer, no clear lead is left."
    )
    assert "39.2 ± 0.5 % over 5 fresh seeds, standard attention 36.2 ± 0.4 %" in said
    assert "52.7 ± 0.2 %, −0.1 ± 0.3 points" in said
    assert "scored it 40.8 % and believed 40.2 ± 0.6 %" in said
    assert ("39.2 ± 0.5 %", "accuracy, fresh seeds", "fresh") in found.figures
    assert ("0.79 ×", "MACs of mha", "cost") in found.figures


@pytest.mark.parametrize(
    ("fresh", "long", "headline", "longer"),
    [
        (
            0.0,
            0.1,
            "leads standard attention by 3.0 ± 0.8 points; trained longer, the lead holds.",
            "the lead holds",
        ),
        (0.0, -0.1, "; trained longer, it falls behind.", "it falls behind"),
        (-0.03, 0.0, "is level with standard attention at 0.79 of its MACs.", "it is level"),
        (-0.1, 0.1, "falls behind standard attention by 7.0 ± 0.8 points.", "it leads"),
        (-0.1, -0.1, "falls behind standard attention by 7.0 ± 0.8 points.", "it falls behind"),
    ],
)
def test_words_follow_the_fresh_numbers(
    content: RunView, fresh: float, long: float, headline: str, longer: str
) -> None:
    """What never led can neither lose a lead nor hold it."""
    found = verdict_of(shifted(shifted(content, "fresh", fresh), "long", long))
    assert found.headline.endswith(headline)
    assert found.sentences[1].endswith(f" points over standard attention: {longer}.")


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([0.0] * 5, "is level with"),
        ([0.02] * 5, "is level with"),  # no spread: nothing that a test could go by
        ([0.01, 0.03], "is level with"),  # 2.0 standard errors, 12.7 are asked of two pairs
        ([0.0199, 0.0201], "leads"),
        ([0.01, 0.02, 0.03], "is level with"),  # 3.5 standard errors, 4.3 are asked
        ([0.015, 0.02, 0.025], "leads"),
        ([-0.015, -0.02, -0.025], "falls behind"),
    ],
)
def test_who_leads_is_said_by_students_t(
    content: RunView, gains: Sequence[float], words: str
) -> None:
    headline = verdict_of(led(content, "fresh", gains)).headline
    assert headline.startswith(f"06ce36bb {words} standard attention")


def test_less_may_be_better(content: RunView) -> None:
    """By 0.4 points more than with fresh seeds, an error was scored that much too badly."""
    found = verdict_of(minimised(content))
    assert "scores were too good by −0.4 points, estimates by −0.2 points" in found.sentences[3]
    assert found.headline.startswith("06ce36bb falls behind standard attention by 3.0 ± 0.8")


def test_what_was_trained_to_confirm_alone_is_not_the_cheapest(content: RunView) -> None:
    """A control that led, and standard attention beside itself, were asked for their costs."""
    assert content.names.keys() & content.fresh["fresh"].keys() > {content.standard_key}
    for whole in (led(content, "fresh", [0.02, 0.021]), minimised(content)):
        found = tuple(m for m in whole.mechanisms if m.key not in content.names)
        lone = dataclasses.replace(whole, mechanisms=found, names={})
        assert lone.standard_key == content.standard_key
        assert verdict_of(lone).headline == verdict_of(whole).headline


def test_what_is_not_confirmed_is_said_to_be_so(content: RunView) -> None:
    found = verdict_of(dataclasses.replace(content, confirmations=()))
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


def test_operators_account_for_every_mechanism(content: RunView) -> None:
    found = operators_of(content)
    assert sum(one.trained for one in found) == len(content.trained) == 279
    assert sum(one.stayed for one in found) == len(content.members)
    assert all(one.stayed <= one.joined <= one.trained for one in found)
    whole = sum(one.core_seconds for one in found)
    assert whole == pytest.approx(content.core_seconds)
    assert {one.name: one.trained for one in found}["crossover"] == 167
    assert next(one for one in found if one.name == "sample").gain is None


def test_gain_is_over_the_better_parent(content: RunView) -> None:
    """Of the one `see` among the front's ancestors that has a parent, by hand."""
    one = next(o for o in operators_of(content) if o.name == "remove")
    children = [m for m in content.trained.values() if m.proposal.operator == "remove"]

    def accuracy(mechanism: Any) -> float:
        return float(mechanism.objectives["accuracy"])

    gains = [
        accuracy(child) - max(accuracy(content.by_digest[p]) for p in child.proposal.parents)
        for child in children
    ]
    assert one.gain is not None
    assert one.gain[0] == pytest.approx(sum(gains) / len(gains))
