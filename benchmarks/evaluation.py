"""Compare our evaluation of standard attention with plain PyTorch loops on images.

Model, images and recipe are the same. The task is published-proxy, once unchanged (one layer, one
head) and once for one epoch with four layers and four heads. Our evaluation does more than the
plain loops: it counts costs, tests candidates for constant outputs, and validates on 512 images
after each epoch but the last. The time of a plain loop excludes its preparation (one tensor of
images). Equal accuracies show equal training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from benchmarks.interleaving import fastest, interleaved, ratio
from benchmarks.plain import loaders, preloaded, train
from benchmarks.rows import Mean, Row
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial, training_seed
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, Task, load_task

OURS: Final = "ours"
PER_IMAGE: Final = "DataLoader, a transform an image"
DEEP: Final = {"depth": 4, "heads": 4, "epochs": 1}


def evaluation(options: argparse.Namespace) -> Iterator[Row]:
    """Yield core-seconds and accuracy of each implementation, with one seed per round."""
    for overrides in ({}, DEEP):
        task = load_task("published-proxy", data=options.data, overrides=overrides)
        forms = _forms(task, task.load())
        if overrides:
            del forms[PER_IMAGE]  # measured with one layer
        scores: dict[str, list[float]] = {name: [] for name in forms}
        works = {name: partial(_train_next, form, scores[name]) for name, form in forms.items()}
        taken = interleaved(works, options.seeds)
        for name, samples in taken.items():
            yield {
                "layers": task.depth,
                "implementation": name,
                "core-seconds": fastest(samples),
                "to ours": ratio(samples, taken[OURS]),
                "accuracy, %": Mean.of([100 * score for score in scores[name][1:]]),
            }


def _train_next(form: Callable[[int], float], scores: list[float]) -> None:
    scores.append(form(len(scores)))


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
