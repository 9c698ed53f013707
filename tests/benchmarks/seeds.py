"""Several seeds of one genome: a training step of all in one pass, against their steps in turn.

One pass saves the fixed cost of operations. What that alone is worth, a third form says: one model
that learns from all seeds' images at once, in as large tensors but with a single set of weights.
Expected: at the tasks' own batches a processor's calls are short beside their arithmetic, and one
pass loses; it wins at batches of 8 or 16 with many seeds, and not for mechanisms whose own kernels
know no vmap (additive, sparsemax).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import torch

from nas.evaluation.together_or_in_turn import forms
from nas.evaluation.trainer import build_backbone
from nas.genome import Genome
from nas.mechanisms import mechanism
from nas.tasks import ImageData, Task, load_images, load_task
from nas.training.hardware import resolve_precision
from nas.training.work import Learn, material
from tests.benchmarks.figures import Figure, interleaved, ratio

CPU: Final = torch.device("cpu")
SEEDS: Final = (2, 4, 8)
SAMPLE_SECONDS: Final = 0.05
SMALL: Final = (8, 16, 32)
SPARSEMAX: Final = Genome.from_dict(
    {
        "graph_def": [
            {"op": "scaled_dot_product", "inputs": ["q", "k"]},
            {"op": "sparsemax", "inputs": [0]},
            {"op": "weighted_sum", "inputs": [1, "v"]},
        ],
        "proj_config": {},
    }
)
OTHERS: Final = ("qana", "additive", "sw_sqa", "sparsemax")


class Case(NamedTuple):
    """What is trained: a mechanism under a task, in so large batches."""

    name: str
    task: Task
    mechanism: str
    seeds: tuple[int, ...]


def seeds(options: argparse.Namespace) -> list[Figure]:
    """How many times as long the seeds' steps take in turn."""
    images: dict[str, ImageData] = {}
    figures = []
    print(
        f"\none thread, fastest of {options.rounds} interleaved rounds, milliseconds a seed and "
        f"step\n  {'':47}{'seeds':>6}{'in turn':>9}{'one pass':>9}{'ratio':>7}  "
        f"{'middle half':13}{'one model':>10}"
    )
    for case in _cases(options.data):
        data = images.setdefault(
            f"{case.task.name} {case.task.data}", load_images(case.task.data, case.task)
        )
        figures += [_compare(case, data, count, options.rounds) for count in case.seeds]
    return figures


def _cases(data: str) -> Iterator[Case]:
    for name in ("published-proxy", "vit-cifar10", "comparison"):
        for precision in ("bfloat16", "float32"):
            yield _case(name, data, "mha", SEEDS, precision=precision)
    for other in OTHERS:
        yield _case("vit-cifar10", data, other, (4,), precision="bfloat16")
    for batch in SMALL:
        for precision in ("bfloat16", "float32"):
            yield _case(
                "vit-cifar10", "digits", "mha", SEEDS, precision=precision, batch_size=batch
            )
    for other in OTHERS:
        yield _case("vit-cifar10", "digits", other, (8,), precision="bfloat16", batch_size=8)


def _case(name: str, data: str, mechanism: str, seeds: tuple[int, ...], **changes: object) -> Case:
    few = {"train_images": 1024, "validation_images": 10}
    task = load_task(name, data=data, overrides=few | changes)
    return Case(
        f"{name}, batch {task.batch_size}, {task.precision}, {mechanism}", task, mechanism, seeds
    )


def _compare(case: Case, data: ImageData, count: int, rounds: int) -> Figure:
    genome = SPARSEMAX if case.mechanism == "sparsemax" else mechanism(case.mechanism).genome
    in_turn, in_one_pass = forms(genome, case.task, data, CPU, count)
    works = {
        "in turn": in_turn,
        "one pass": in_one_pass,
        "one model": _one_model(genome, case.task, data, count),
    }
    for work in works.values():
        work()
    taken = interleaved(works, rounds, SAMPLE_SECONDS)
    figure = ratio(f"{case.name}: {count} in turn / one pass", taken["in turn"], taken["one pass"])
    shared = min(taken["in turn"]) / min(taken["one model"])
    own, one = (1e3 * min(taken[form]) / count for form in ("in turn", "one pass"))
    print(
        f"  {case.name:47}{count:6}{own:9.2f}{one:9.2f}{figure.value:7.2f}  {figure.spread:13}"
        f"{shared:10.2f}"
    )
    return figure


def _one_model(genome: Genome, task: Task, data: ImageData, count: int) -> Callable[[], None]:
    """A step of one model with the images of all seeds."""
    task = task.model_copy(update={"schedule": "constant"})
    model = build_backbone(genome, task, data, 0).train()
    precision = resolve_precision(task.precision, CPU)
    part, optimizer = material(
        model.parameters(), task, data, CPU, precision=precision, is_capturable=False
    )
    learn = Learn(model, part, optimizer, precision, CPU)
    chosen = torch.arange(count * task.batch_size) % len(data.train)
    return lambda: learn(chosen)
