"""The verdict: every sentence is true of the numbers that it is about."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nas.evaluation.trial import Training
from nas.report.run_view import RunView
from nas.report.verdict import Verdict, verdict_of
from nas.store import Candidate

from .claims import corrected_sides

Gains = dict[str, Sequence[float]]  # by key, at repeats 0, 1, ...


def confirmed(view: RunView, gains: Gains, part: str = "search", base: float = 0.36) -> RunView:
    """The view with these confirmations of a part in place of its own.

    The metric of mha is ``base`` at every seed, that of others more by a gain.
    """
    kept = tuple(c for c in view.confirmations if c.stage != part)
    template = next(c for c in view.confirmations if c.stage in (part, "long"))
    standard, seeds = str(view.reference_key), max(map(len, gains.values()), default=1)
    names = {key: name for key, (name, *_) in view.names.items()}

    def made(key: str, repeat: int, value: float) -> Training:
        metrics = {**template.evaluation.metrics, "accuracy": value}
        evaluation = dataclasses.replace(template.evaluation, metrics=metrics)
        return dataclasses.replace(
            template,
            stage=part,
            key=key,
            name=names.get(key, ""),
            repeat=repeat,
            evaluation=evaluation,
        )

    rows = [made(standard, repeat, base) for repeat in range(seeds)]
    rows += [made(k, i, base + g) for k, own in gains.items() for i, g in enumerate(own)]
    return dataclasses.replace(view, confirmations=(*kept, *rows))


def alone(view: RunView) -> RunView:
    """The view without trainings under a longer task."""
    return dataclasses.replace(
        view, confirmations=tuple(c for c in view.confirmations if c.stage == "search")
    )


def fail(view: RunView, key: str, repeat: int, part: str = "search") -> RunView:
    """The view in which this training of a confirmation failed."""

    def failed(training: Training) -> Training:
        if (training.stage, training.key, training.repeat) != (part, key, repeat):
            return training
        lost = {"status": "failed", "reason": "diverged", "metrics": {}, "error": "no number"}
        evaluation = dataclasses.replace(training.evaluation, **lost)
        return dataclasses.replace(training, evaluation=evaluation)

    return dataclasses.replace(view, confirmations=tuple(map(failed, view.confirmations)))


def key_of(view: RunView, name: str) -> str:
    return next(key for key, names in view.names.items() if name in names)


def finds(view: RunView) -> list[Candidate]:
    """Candidates that are no controls, best estimate first."""
    controls = {key_of(view, name) for name in ("mha", "uniform")}
    found = [one for one in view.candidates if one.key not in controls]
    return sorted(found, key=lambda one: -one.objectives["accuracy"])


def sides_of(gains: Gains) -> dict[str, str]:
    """The words of the verdict on each mechanism for these gains."""
    words = {"better": "leads", "worse": "falls behind", "undecided": "undecided"}
    base = [0.0] * max(map(len, gains.values()))
    sides = corrected_sides({**gains, "mha": base}, "mha")
    return {key: words[str(side)] for key, side in sides.items()}


def drawn(view: RunView, rng: np.random.Generator) -> tuple[RunView, Gains]:
    """Any mechanisms with any gains over one to five seeds; often with controls that lead."""
    seeds = int(rng.integers(1, 6))
    chosen = [finds(view)[i] for i in rng.choice(60, rng.integers(1, 7), replace=False)]
    keys = [one.key for one in chosen]
    if rng.random() < 0.7:
        keys.append(key_of(view, "uniform"))
    if rng.random() < 0.5:
        keys.append(key_of(view, "qana"))
    gains = {
        key: [*map(float, rng.normal(rng.normal(0.0, 0.03), 0.01, seeds))]
        for key in dict.fromkeys(keys)
    }
    shuffled = [*gains]
    rng.shuffle(shuffled)
    return confirmed(view, {key: gains[key] for key in shuffled}), gains


def number(text: str) -> float:
    return float(text.replace("−", "-"))


def sentence(found: Verdict, beginning: str) -> str:
    return next((s for s in found.sentences if s.startswith(beginning)), "")


@pytest.mark.parametrize("seed", range(6))
def test_every_sentence_is_true_of_drawn_confirmations(example: RunView, seed: int) -> None:
    rng = np.random.default_rng(seed)
    view, gains = drawn(alone(example), rng)
    found = verdict_of(view)
    text = " ".join((found.headline, *found.sentences))

    # The subject is the find with the best estimate; controls are none.
    known = [one for one in finds(view) if one.key in gains]
    best = known[0]
    name = view.called(best)
    assert name in found.headline
    assert "uniform" not in text

    # Leads and losses are those of the test; what is undecided is called neither, nor equal.
    decided = sides_of(gains)
    sides = {one.key: decided[one.key] for one in known}
    mean = 100 * float(np.mean(gains[best.key]))
    for words in ("leads", "falls behind"):
        assert (f"{name} {words} mha by" in found.headline) == (sides[best.key] == words)
    assert ("No difference" in found.headline) == (sides[best.key] == "undecided")
    assert "level" not in text
    assert ("--long TASK` measures" in text) == (sides[best.key] == "leads")
    over = next(f for f in found.figures if f.label == "over mha, fresh seeds")
    assert number(over.value.split()[0]) == pytest.approx(mean, abs=0.051)
    assert (over.kind == "lead") == (sides[best.key] == "leads")
    assert not [f for f in found.figures if f.kind == "lead" and f.value.startswith("−")]

    # Counts are of all confirmed mechanisms.
    counts = [list(sides.values()).count(word) for word in ("leads", "falls behind", "undecided")]
    if len(known) > 1:
        said = sentence(found, f"Of {len(known)} confirmed mechanisms")
        said = re.findall(r"(?:better|worse|undecided) (\d+)", said)
        assert [int(count) for count in said] == counts


def test_example_has_the_numbers_of_readme(example: RunView) -> None:
    """README's table of `nas confirm example` has these numbers."""
    found = verdict_of(example)
    said = " ".join(found.sentences)
    assert len(found.sentences) == 4
    assert found.headline == (
        "No difference between layer_norm-rope-06ce3 and mha is established with 5 fresh seeds."
    )
    assert "39.2 ± 0.5 % over 5 fresh seeds, mha 36.2 ± 0.4 %" in said
    assert "in points, with their 95 % intervals: fresh +3.0 [+0.8, +5.3], undecided" in said
    assert "; long −0.1 [" in said
    assert ("39.2 ± 0.5 %", "accuracy, fresh seeds", "fresh") in found.figures
    assert ("0.79 ×", "MACs of mha", "cost") in found.figures


LEAD, NONE, LOSS = [0.01, 0.011, 0.012], [-0.01, 0.01, 0.0], [-0.01, -0.011, -0.012]


@pytest.mark.parametrize(
    ("fresh", "long", "headline", "longer"),
    [
        (LEAD, LOSS, "leads mha by 1.1 points (95 % interval 0.9 to 1.3", "worse"),
        (LOSS, LEAD, "behind mha by 1.1 points (95 % interval 0.9 to 1.3", "better"),
    ],
)
def test_each_part_is_decided_alone(
    example: RunView, fresh: Any, long: Any, headline: str, longer: str
) -> None:
    key = finds(example)[0].key
    view = confirmed(confirmed(example, {key: long}, "long"), {key: fresh})
    found = verdict_of(view)
    assert headline in found.headline
    assert found.headline.endswith(", 3 seeds).")
    assert "--long" not in " ".join(found.sentences)
    assert found.sentences[1].partition("; long")[2].startswith((" −1.1 [", " +1.1 ["))
    assert f"], {longer}. Undecided" in found.sentences[1]


@pytest.mark.parametrize("which", ["best", "mha"])
def test_nothing_is_compared_over_failed_trainings(example: RunView, which: str) -> None:
    view = alone(example)
    first, second = (one.key for one in finds(view)[:2])
    view = confirmed(view, {first: [*LEAD, 0.02], second: [*LOSS, -0.02]})
    key = {"best": first, "mha": str(view.reference_key)}[which]
    found = verdict_of(fail(view, key, 3))
    assert found.headline.startswith("layer_norm-rope-06ce3 reaches ")
    assert not [f for f in found.figures if f.label.startswith("over mha")]
    assert found.sentences[1].startswith("They are not compared, because a training of one")
    counts = sentence(found, "Of 2 confirmed mechanisms")
    assert ("worse 1; undecided 0; not compared 1" in counts) == (which == "best")


def test_the_best_of_an_unconfirmed_run_is_no_control(example: RunView) -> None:
    mha, best = example.trained[key_of(example, "mha")], example.members[0]
    view = dataclasses.replace(example, confirmations=(), members=(mha, best))
    found = verdict_of(view)
    assert found.headline == (
        "layer_norm-rope-06ce3 has the best estimate so far, and is not yet confirmed."
    )
    assert "its accuracy is 40.2 ± 0.6 %, that of mha 36.1 ± 0.8 %" in (found.sentences[0])
    found = verdict_of(dataclasses.replace(view, members=(mha,)))
    assert found.headline == "No mechanism but the controls is in the front."


def test_a_mechanism_within_the_limits_precedes_those_outside(example: RunView) -> None:
    """Of three confirmed ones the best two are outside; then all are."""
    best, second, third = finds(example)[:3]
    view = confirmed(alone(example), dict.fromkeys((best.key, second.key, third.key), NONE))

    def limited(limit: float) -> Verdict:
        objectives = tuple(
            dataclasses.replace(o, limit=limit if o.name == "macs" else None)
            for o in view.setup.objectives
        )
        setup = dataclasses.replace(view.setup, objectives=objectives)
        return verdict_of(dataclasses.replace(view, setup=setup))

    by_macs = sorted((best, second, third), key=lambda one: one.costs["macs"])
    found = limited(by_macs[0].costs["macs"])
    assert view.called(by_macs[0]) in found.headline
    assert "It is not in the front" not in found.sentences[0]
    found = limited(1.0)
    assert "layer_norm-rope-06ce3" in found.headline
    assert found.sentences[0].endswith("It is not in the front (outside: MACs at most 1).")
