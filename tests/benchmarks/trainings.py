"""Can the tasks tell attention from a mean over all tokens, and what does a training cost?"""

from __future__ import annotations

import argparse
from statistics import mean, stdev
from typing import Final

from nas.evaluation.local import LocalEvaluator
from nas.evaluation.study import study
from nas.mechanisms import MECHANISMS
from nas.tasks import load_images, load_task
from tests.benchmarks.figures import Figure, fastest

TASKS: Final = ("vit-cifar10", "published-proxy")
PAIR: Final = ("mha", "uniform")


def trainings(options: argparse.Namespace) -> list[Figure]:
    """Core-seconds and accuracy of one training under each built-in task."""
    return [figure for name in TASKS for figure in _train_pair(name, options.data, options.seeds)]


def _train_pair(name: str, data: str, seeds: int) -> list[Figure]:
    task = load_task(name, data=data)
    evaluator = LocalEvaluator(task, load_images(task.data, task))
    print(f"\n{name}: {task.budget}, one core, {seeds} seeds")
    mechanisms = [(n, MECHANISMS[n].genome) for n in PAIR]
    trials = list(study(mechanisms, task, evaluator, repeats=seeds))
    scores: dict[str, list[float]] = {}
    figures = []
    for mechanism in PAIR:
        own = [t.evaluation for t in trials if t.name == mechanism]
        scores[mechanism] = [100 * e.objectives["accuracy"] for e in own]
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
