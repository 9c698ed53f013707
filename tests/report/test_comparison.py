"""Comparisons: differences are paired, tested and corrected; displays say what the test says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel

from nas.common.objectives import Metric
from nas.common.rates import CHOOSING_SEEDS
from nas.report.comparison import Comparison, TrainingRow, compare
from nas.report.comparison_table import comparison_table
from nas.report.judgement import Judgement, make_judgement
from tests.evaluation.conftest import make_evaluation

from .claims import corrected_sides
from .conftest import Printed

ACCURACY = Metric("accuracy", "fraction", "max", 0.1, 1.0)
BITS = Metric("bits_per_byte", "bit", "min", 5.0, 0.0)
COSTS = {"macs": 1e6}
FAULT = "Traceback ...\nthe loss is no number\x1b[2J"
BASE = np.random.default_rng(0).normal(0.5, 0.05, 5)


@pytest.mark.parametrize("base", [0.05, 0.5])
def test_a_failed_training_is_no_gain(base: float) -> None:
    """Also beside a reference that is worse than chance, and as the reference of another."""
    scores = {"fails": [None] * 9, "mha": [base] * 9}
    for source, against, side in (("fails", "mha", "worse"), ("mha", "fails", "better")):
        rows = trainings(scores)
        judged = make_judgement(source, against, "images", rows, ACCURACY, "typical", 1, 1)
        assert judged.verdict == ("undecided" if base < ACCURACY.chance else side)


def test_a_claim_of_a_judgement_holds_at_every_rate_of_the_other() -> None:
    rates = {0.1: {"mine": 0.6, "mha": 0.5}, 0.2: {"mine": 0.9, "mha": 0.6}}
    pairs, chosen = 9, {"mine": 0.2, "mha": 0.1}
    rows = [
        replace(row, learning_rate=rate)
        for rate, values in rates.items()
        for row in trainings(
            {name: [value] * (CHOOSING_SEEDS + pairs) for name, value in values.items()}
        )
    ]

    def judged(rows: list[TrainingRow]) -> Judgement:
        return make_judgement("mine", "mha", "images", rows, ACCURACY, "typical", 1, 1, chosen)

    def is_other(row: TrainingRow) -> bool:
        return row.mechanism == "mha" and row.learning_rate == 0.2 and row.repeat >= CHOOSING_SEEDS

    few = judged([row for row in rows if not is_other(row) or row.repeat < 5])
    assert (few.verdict, few.pairs, few.unbeaten) == ("undecided", pairs, {"mha": [0.2]})
    every = judged(rows)
    assert (every.verdict, every.unbeaten) == ("better", {})
    assert every.claims["typical"].rates == {0.2: every.claims["typical"].better}
    assert [cell.learning_rate for cell in every.comparison.cells.values()] == [0.1, 0.2]
    assert every.comparison.tuning is not None
    assert every.comparison.tuning["trainings"] == len(rows) - 2 * pairs


def trainings(values: Any, metric: Metric = ACCURACY, part: str = "images") -> list[TrainingRow]:
    """Trainings of each mechanism, by seed; None failed."""
    found = []
    for name, own in values.items():
        for repeat, value in enumerate(own):
            failed = {"status": "failed", "reason": "diverged", "error": FAULT, "metrics": {}}
            changes = {"metrics": {metric.name: value}} if value else failed
            evaluation = make_evaluation(seed=repeat, core_seconds=2.0, **changes)
            found.append(TrainingRow(name, name, part, repeat, evaluation, COSTS, metric))
    return found


def compared(rows: list[TrainingRow], seeds: int = 5, **options: Any) -> Comparison:
    parts = dict.fromkeys(row.part for row in rows)
    return compare(rows, {part: part for part in parts}, "mha", seeds, **options)


@pytest.fixture
def result() -> Comparison:
    rng = np.random.default_rng(1)
    up, down = (BASE + 0.05 + rng.normal(0, 1e-3, 5), 5 * BASE + 0.1 + rng.normal(0, 1e-3, 5))
    rows = trainings({"mha": BASE, "up": up, "like": BASE + 1e-6})
    failing = [2.5, None, 2.4, None, 2.6]
    rows += trainings({"mha": 5 * BASE, "up": down, "like": failing}, BITS, "bytes")
    absent = {"up": {"recall": "sees later tokens"}}
    return compared(rows, absent=absent)


def test_differences_are_paired_and_verdicts_follow_the_direction(result: Comparison) -> None:
    lead, worse = (result.cells[part, "up"].difference for part in ("images", "bytes"))
    assert lead is not None
    assert worse is not None
    assert (lead.verdict, worse.verdict) == ("better", "worse")
    own = [*result.cells["images", "up"].values.values()]
    found = ttest_rel(own, BASE)
    assert lead.p == pytest.approx(found.pvalue)
    assert lead.p_holm == pytest.approx(found.pvalue)  # the other is equal, at all seeds
    assert worse.p_holm == worse.p  # the other failed
    assert (lead.low, lead.high) == pytest.approx(tuple(found.confidence_interval(0.95)))
    failing = result.cells["bytes", "like"]  # what is left of it is chosen by luck
    assert failing.difference is None
    assert failing.failed == {"diverged: the loss is no number\\u001b[2J": 2}
    assert result.cells["images", "mha"].difference is None


def test_table_shows_differences_failures_and_absent_mechanisms(
    result: Comparison, pipe: Printed
) -> None:
    comparison_table(pipe.console, result)
    assert "accuracy % (higher is better), bits per byte (lower is better)" in pipe.lines[0]
    assert "up, recall: not trained, sees later tokens" in pipe.text
    assert "like, bytes: 2 trainings failed, diverged: the loss is no number\\u001b[2J" in pipe.text
    assert "after Holm's correction" in pipe.text
    row = next(line for line in pipe.lines if line.startswith("up"))
    assert "+5.0 [+4.9, +5.1]" in row
    assert "?" not in row


def test_single_pairs_have_a_difference_without_an_interval(pipe: Printed) -> None:
    comparison_table(pipe.console, compared(trainings({"mha": [1.25], "sqa": [1.5]}, BITS), 1))
    rows = {line.split()[0]: line.split() for line in pipe.lines if line}
    assert rows["sqa"][1:5] == ["1.50", "(1)", "+0.250", "?"]


@pytest.mark.parametrize("metric", [ACCURACY, BITS], ids=["max", "min"])
@pytest.mark.parametrize("seed", range(4))
def test_table_marks_the_undecided_and_compares_no_failed(
    pipe: Printed, metric: Metric, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    seeds = int(rng.integers(2, 6))
    base = rng.normal(0.5, 0.05, seeds)
    rows = {f"m{i}": base + rng.normal(rng.normal(0, 0.03), 0.01, seeds) for i in range(5)}
    scores = {
        name: [None if rng.random() < 1 / 12 else float(value) for value in row]
        for name, row in {"mha": base, **rows}.items()
    }
    comparison_table(pipe.console, compared(trainings(scores, metric), seeds))
    lines = {line.split()[0]: line for line in pipe.lines if line}
    sides = corrected_sides(scores, "mha", metric.direction)
    for name, side in sides.items():
        assert ("?" in lines[name]) == (side == "undecided")
        assert ("[" in lines[name]) == (side is not None)


def test_mechanisms_are_compared_at_their_best_rates(pipe: Printed) -> None:
    rng, seeds = np.random.default_rng(1), 5
    means = {0.01: {"mha": 2.5, "up": 2.9, "like": 2.5}, 0.03: {"mha": 2.9, "up": 2.0, "like": 2.5}}
    rows = []
    for rate, by_name in means.items():
        noise = rng.normal(0, 0.01, (3, seeds + CHOOSING_SEEDS))
        values: dict[str, Any] = {
            name: [*(mean + row)] for (name, mean), row in zip(by_name.items(), noise, strict=True)
        }
        if rate == 0.03:
            values["like"][-1] = None
        rows += [replace(row, learning_rate=rate) for row in trainings(values, BITS)]
    result = compared(rows, seeds)
    mha, up, like = (result.cells["images", name] for name in ("mha", "up", "like"))
    assert (mha.learning_rate, up.learning_rate, like.learning_rate) == (0.01, 0.03, 0.01)
    assert up.difference is not None
    assert like.difference is not None
    assert (up.difference.verdict, like.difference.verdict) == ("better", "undecided")
    assert up.mean == up.rates["0.03"] == pytest.approx(2.0, abs=0.03)
    assert up.seeds == seeds
    assert list(like.rates) == ["0.01"]  # a training failed at the other rate
    comparison_table(pipe.console, result)
    assert "so that a lower one may be better: mha, like." in pipe.text
    assert "so that a higher one may be better: up." in pipe.text
    num = 3 * 2 * (seeds + CHOOSING_SEEDS)
    assert result.tuning == {"trainings": num - 3 * seeds, "core_seconds": 2 * (num - 3 * seeds)}
    comparison_table(pipe.console, result)
    assert "at their best learning rates" in pipe.text
    assert "27 trainings, 54 core s, are not shown." in pipe.text


def test_answer_and_tables_have_every_training(result: Comparison) -> None:
    answer = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [row["mechanism"] for row in answer["rows"]] == ["mha", "up", "like"]
    assert answer["rows"][2]["parts"]["bytes"]["values"] == [2.5, None, 2.4, None, 2.6]
    assert [row["status"] for row in answer["trained"]].count("failed") == 2
    assert len(result.trainings) == len(answer["trained"]) == 30
    table = result.table.set_index(["part", "mechanism"])
    assert table.loc[("images", "up"), "over_verdict"] == "better"
    assert table.loc[("bytes", "like"), "failed"] == 2
