"""An explanation distinguishes a useless from an essential part.

Plan, seeds and statistics are real; the trainings are invented. A score is the known quality of a
genome plus noise, which is drawn from the deviations of trainings from their mean in the table
``attention-bench``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np

from benchmarks.tabular.table import load_table
from nas.common.objectives import Metric
from nas.evaluation.study import cost_context, study
from nas.explaining import Bounds, plan_explanation
from nas.genome import Genome
from nas.report.comparison import TrainingRow
from nas.report.explanation import ExplainResult, make_explanation
from nas.space.rules import load_policy
from nas.store.sources import resolve
from nas.tasks import Data, load_task
from tests.evaluation.conftest import make_evaluation
from tests.genomes import build
from tests.recorded_run import Invented

TASK = load_task("vit-cifar10")
DATA = Data(name="none", train={}, validation={}, digest="0")
ACCURACY = Metric("accuracy", "fraction", "max", 0.1, 1.0)
SEEDS, MARGIN = 30, 0.015
ESSENTIAL, USELESS = "gelu", "layer_norm"
WORTH = 0.03
PLANTED = build(
    ("scaled_dot_product", "qk"),
    ("softmax", [0]),
    (ESSENTIAL, "v"),
    (USELESS, [2]),
    ("weighted_sum", [1, 3]),
)


@cache
def luck():
    """Deviations of trainings from the mean of their mechanism, scaled to many seeds."""
    scores = load_table("attention-bench").scores("accuracy")
    scores = scores[~np.isnan(scores).any(axis=1)]
    count = scores.shape[1]
    return (scores - scores.mean(1, keepdims=True)).ravel() * math.sqrt(count / (count - 1))


def truth(genome):
    ops = {node.op for node in genome.nodes}
    worth = WORTH * (ESSENTIAL in ops) - 0.1 * ("uniform" in ops)
    return 0.36 + worth - 0.02 * (4 - sum(genome.projections.has_projection(s) for s in "qkv"))


class Known(Invented):
    """An evaluator that returns the true quality plus noise."""

    def __init__(self, failing=None):
        super().__init__()
        self.failing = failing

    def evaluate(self, trial):
        rng = np.random.default_rng([trial.seed, int(trial.key, 16)])
        if self.failing in {node.op for node in trial.mechanism.nodes}:
            failed = {"status": "failed", "reason": "diverged", "metrics": {}}
            return make_evaluation(seed=trial.seed, **failed)
        accuracy = truth(trial.mechanism) + rng.choice(luck())
        return make_evaluation(seed=trial.seed, metrics={"accuracy": accuracy})


@cache
def plan():
    bounds = Bounds(load_policy("score_normalize_aggregate"), TASK)
    return plan_explanation(PLANTED, bounds, cost_context(TASK, {}), resolve("mha"))


def explained(seed: int, failing: str | None = None) -> ExplainResult:
    trained: Any = defaultdict(list)
    mechanisms = [*plan().mechanisms.items()]
    options: Any = {"repeats": range(SEEDS), "seed": seed, "purpose": "explain"}
    for training in study(mechanisms, TASK, DATA, lambda: Known(failing), **options):
        named = training.name, training.digest, "t", training.repeat, training.evaluation
        trained[training.key].append(TrainingRow(*named, {"macs": 1.0}, ACCURACY))
    return make_explanation("planted", "t", ACCURACY, MARGIN, SEEDS, plan(), trained)


def test_verdicts_on_planted_parts_are_right_in_20_repetitions():
    apart = wrong = 0
    own = truth(plan().genome)
    for repetition in range(20):
        result = explained(repetition)
        verdicts = {row.words: row.verdict for row in result.edits}
        found = verdicts[f"without {ESSENTIAL}"], verdicts[f"without {USELESS}"]
        apart += found == ("needed", "harmless")
        for row in (*result.edits, *result.controls):
            true = truth(Genome.from_dict(row.genome)) - own
            wrong += {
                "harmful": true <= 0,
                "better": true <= 0,
                "needed": true >= 0,
                "worse": true >= 0,
                "harmless": abs(true) >= MARGIN,
                "same": abs(true) >= MARGIN,
                "undecided": False,
            }[row.verdict]
    assert apart >= 19
    assert wrong <= 1


def test_change_with_a_failed_training_gets_no_verdict():
    rows = {row.words: row for row in explained(0, failing="uniform").edits}
    failed = rows["uniform in place of softmax"]
    assert (failed.difference, failed.verdict) == (None, "undecided")
    assert sum(failed.trained.failed.values()) == SEEDS
    assert rows[f"without {ESSENTIAL}"].verdict == "needed"
