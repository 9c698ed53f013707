"""Can the tasks tell attention from a mean over all tokens, and what does a training cost?

Images are those of ``--data``; recall draws its own sequences.
"""

from __future__ import annotations

import argparse
from statistics import mean, stdev
from typing import Final

from nas.evaluation.local import LocalEvaluator
from nas.evaluation.study import study
from nas.mechanisms import MECHANISMS
from nas.tasks import load_task
from tests.benchmarks.figures import Figure, fastest

TASKS: Final = ("vit-cifar10", "published-proxy", "recall")
PAIR: Final = ("mha", "uniform")


def trainings(options: argparse.Namespace) -> list[Figure]:
    """Core-seconds and accuracy of one training under each built-in task."""
    return [figure for name in TASKS for figure in _train_pair(name, options.data, options.seeds)]


def _train_pair(name: str, data: str, seeds: int) -> list[Figure]:
    task = load_task(name, data=None if name == "recall" else data)
    evaluator = LocalEvaluator(task, task.load())
    print(f"\n{name}: {task.epochs} epochs, one core, {seeds} seeds")
    mechanisms = [(n, MECHANISMS[n].genome) for n in PAIR]
    results = list(study(mechanisms, task, evaluator, repeats=seeds))
    scores: dict[str, list[float]] = {}
    figures = []
    for mechanism in PAIR:
        own = [r.evaluation for r in results if r.name == mechanism]
        scores[mechanism] = [100 * e.metrics["accuracy"] for e in own]
        seconds = [e.core_seconds for e in own]
        figures.append(fastest(f"{name}: {mechanism}", seconds, "core-seconds"))
        print(
            f"  {mechanism:8} accuracy {_spread(scores[mechanism])} %   core-seconds "
            f"{min(seconds):.2f} to {max(seconds):.2f}"
        )
    gap = mean(scores["mha"]) - mean(scores["uniform"])
    error = sum(stdev(s) ** 2 / len(s) for s in scores.values()) ** 0.5
    print(f"  mha - uniform: {gap:.2f} points, {gap / error:.1f} standard errors")
    return figures


def _spread(values: list[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values) / len(values) ** 0.5:.2f}"
