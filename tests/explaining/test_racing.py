"""A race distinguishes a useless from an essential part, and trains unresolved pairs further.

The race, its seeds and its statistics are real; the trainings are invented. A score is the known
quality of a genome plus noise, which is drawn from the deviations of trainings from their mean in
the table ``attention-bench``.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from benchmarks.tabular.table import load_table
from nas.common.objectives import Metric
from nas.evaluation.trial import Budget, Evaluation
from nas.explaining import Bounds, Race, plan_explanation
from nas.searching.setup import cost_context
from nas.space.rules import load_policy
from nas.tasks import Data, load_task
from tests.genomes import build

TASK = load_task("vit-cifar10")
DATA = Data(name="none", train={}, validation={}, digest="0")
ACCURACY = Metric("accuracy", "fraction", "max", 0.1, 1.0)
LOOKS, MARGIN = (5, 10, 20, 40), 0.015
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


class Known:
    """An `Evaluator` that returns the true quality plus noise."""

    workers = 1

    def __init__(self, failing=None):
        self.failing, self.trials = failing, []

    def calibrate(self):
        return {}

    def submit(self, trials):
        self.trials.extend(trials)
        self.waiting = list(trials)

    def wait(self):
        answers, self.waiting = [(one, self.answer(one)) for one in self.waiting], []
        return answers

    def close(self):
        pass

    def answer(self, trial):
        rng = np.random.default_rng([trial.seed, int(trial.key, 16)])
        found = ("ok", None, {"accuracy": truth(trial.mechanism) + rng.choice(luck())})
        if self.failing is not None and self.failing in {n.op for n in trial.mechanism.nodes}:
            found = ("failed", "diverged", {})
        rest = ((), trial.seed, Budget(1, 1, "float32"), 1.0, 1.0, 0, "here")
        return Evaluation(*found, *rest)


@cache
def plan():
    bounds = Bounds(load_policy("score_normalize_aggregate"), TASK)
    return plan_explanation(PLANTED, bounds, cost_context(TASK, {}))


def raced(seed, evaluator=None):
    """A finished race and its findings."""
    race, evaluator = Race(plan(), ACCURACY, LOOKS, MARGIN), evaluator or Known()
    totals = [total for _, total in race.run(TASK, DATA, evaluator, seed)]
    assert totals[-1] == len(evaluator.trials) == len(totals)
    return race, race.findings()


def verdict(race, found, words):
    [one] = [c for c in race.plan.comparisons if (c.part, c.words) == ("edits", words)]
    finding = found[one.pair]
    return finding.verdict if one.pair == (one.before, one.after) else finding.reversed().verdict


def test_verdicts_on_planted_parts_are_right_in_20_repetitions():
    apart = wrong = 0
    for repetition in range(20):
        race, found = raced(repetition)
        essential = verdict(race, found, f"without {ESSENTIAL}")
        useless = verdict(race, found, f"without {USELESS}")
        apart += (essential, useless) == ("worse", "same")
        for (a, b), finding in found.items():
            true = truth(plan().mechanisms[b]) - truth(plan().mechanisms[a])
            wrong += {
                "better": true <= 0,
                "worse": true >= 0,
                "same": abs(true) >= MARGIN,
                "unresolved": False,
            }[finding.verdict]
    assert apart >= 19
    assert wrong <= 1


def test_resolved_pairs_get_no_further_seeds():
    evaluator = Known()
    race, _ = raced(0, evaluator)
    [uniform] = [c for c in plan().comparisons if c.words == "uniform in place of softmax"]
    assert len(race.evaluations[uniform.after]) < LOOKS[-1]
    assert len(race.evaluations[plan().source]) == max(map(len, race.evaluations.values()))
    assert len({(one.key, one.seed) for one in evaluator.trials}) == len(evaluator.trials)
    assert len(evaluator.trials) < LOOKS[-1] * len(plan().mechanisms)


def test_pair_with_a_failed_training_gets_no_verdict():
    race, found = raced(0, Known(failing="uniform"))
    [uniform] = [c for c in plan().comparisons if c.words == "uniform in place of softmax"]
    assert found[uniform.pair] is None
    assert len(race.evaluations[uniform.after]) == LOOKS[0]
    assert verdict(race, found, f"without {ESSENTIAL}") == "worse"
