"""Compare our evaluation of standard attention with plain PyTorch loops on images.

Model, images and recipe are the same. The task is published-proxy, once unchanged (one layer, one
head) and once for one epoch with four layers and four heads. Our evaluation does more than the
plain loops: it counts costs, tests candidates for constant outputs, and validates on 512 images
after each epoch but the last. The time of a plain loop excludes its preparation (one tensor of
images). Equal accuracies show equal training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.figures import Figure, fastest, interleaved, ratio
from benchmarks.plain import loaders, preloaded, train
from nas.common.differences import mean_and_error
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial, training_seed
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, Task, load_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OURS: Final = "ours"
PER_IMAGE: Final = "DataLoader, a transform an image"
DEEP: Final = {"depth": 4, "heads": 4, "epochs": 1}


def evaluation(options: argparse.Namespace) -> list[Figure]:
    """Return core-seconds and accuracy of each implementation, with one seed per round."""
    task = load_task("published-proxy", data=options.data)
    deep = load_task("published-proxy", data=options.data, overrides=DEEP)
    data = task.load()
    forms = _forms(task, data)
    deep_forms = _forms(deep, data)
    del deep_forms[PER_IMAGE]  # measured above
    return [
        *_compare(task, forms, "", options.seeds),
        *_compare(deep, deep_forms, "four layers: ", options.seeds),
    ]


def _compare(
    task: Task, forms: Mapping[str, Callable[[int], float]], prefix: str, seeds: int
) -> list[Figure]:
    taken, accuracies = timed(forms, seeds)
    _print(task, seeds, taken, accuracies)
    ratios = [
        ratio(f"{prefix}{name} / {OURS}", taken[name], taken[OURS])
        for name in forms
        if name != OURS
    ]
    return [fastest(prefix + OURS, taken[OURS], "core-seconds"), *ratios]


def _forms(task: Task, data: Data) -> dict[str, Callable[[int], float]]:
    """Return each implementation by name: it trains with a seed and returns the accuracy."""
    exact = task.model_copy(update={"precision": "float32"})
    per_image, in_memory = (get(data, task.batch_size) for get in (loaders, preloaded))
    return {
        OURS: partial(train_ours, task, data),
        "ours in float32": partial(train_ours, exact, data),
        PER_IMAGE: partial(train, task, data, per_image),
        "images in memory": partial(train, task, data, in_memory),
    }


def train_ours(task: Task, data: Data, seed: int) -> float:
    """Train standard attention as in a search; return the task's first metric."""
    genome = task.resolve(mechanism("mha").genome).genome
    result = train_candidate(Trial("mha", genome, training_seed(0, "benchmark", seed)), task, data)
    assert result.is_ok, result.error
    return result.metrics[task.metrics(data)[0].name]


def timed(
    forms: Mapping[str, Callable[[int], float]], seeds: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Train alternately with ``seeds`` seeds; return core-seconds and scores by implementation.

    Args:
        forms: functions that train with a seed and return a score.
    """
    scores: dict[str, list[float]] = {name: [] for name in forms}

    def train_next_seed(name: str) -> None:
        scores[name].append(forms[name](len(scores[name])))

    taken = interleaved({name: partial(train_next_seed, name) for name in forms}, seeds)
    return taken, {name: rows[1:] for name, rows in scores.items()}  # without the warm-up round


def _print(
    task: Task,
    seeds: int,
    taken: Mapping[str, Sequence[float]],
    accuracies: Mapping[str, Sequence[float]],
) -> None:
    sizes = f"depth {task.depth}, heads {task.heads}"
    print(
        f"\n{task.name}, {task.data}, {sizes}: {task.epochs} epochs, mha, one thread, {seeds} seeds"
    )
    print(f"  {'':34}{'core-seconds':>13}{'to':>7}{'ratio':>7}{'accuracy':>17}")
    for name, samples in taken.items():
        times = min(samples) / min(taken[OURS])
        middle, error = mean_and_error([100 * a for a in accuracies[name]])
        print(
            f"  {name:34}{min(samples):13.2f}{max(samples):7.2f}{times:7.2f}{middle:10.2f} ± "
            f"{error or 0.0:.2f} %"
        )
