"""The published evaluation and ours: the same thirty genomes, the same images, one thread.

Needs a copy of the published code, rezighamza/Evolving-Attention (the figures of docs/benchmarks.md
are of b5b18f9), and what that imports: ``--published FOLDER``. It runs unchanged, its own loaders
included, in a process of its own, which our settings of the C library do not reach; only its data
set is replaced by one that serves the images of our task, as PIL images and through its own
transform. Genomes are drawn by its own mutations from standard attention, and
are what both systems can train, distinct by our digest, so that nobody is flattered by what the
other cannot do.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import random
import statistics
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch

from benchmarks.figures import TIMES, Figure
from benchmarks.plain import PerImage
from nas.common.errors import NasError
from nas.compiler import make_plan
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial, training_seed
from nas.genome import Genome
from nas.tasks import load_task

if TYPE_CHECKING:
    from pathlib import Path

    from nas.tasks import Data, Task

GENOMES: Final = 30
MOST_MUTATIONS: Final = 6
STANDARD: Final = {
    "graph_def": [
        {"op": "scaled_dot_product", "inputs": ["q", "k"]},
        {"op": "softmax", "inputs": [0]},
        {"op": "weighted_sum", "inputs": [1, "v"]},
    ],
    "proj_config": {"has_wq": True, "has_wk": True, "has_wv": True, "has_wo": True},
}


def published(options: argparse.Namespace) -> list[Figure]:
    """Core-seconds of both for every genome, taken in turn."""
    if options.published is None:
        print("\npublished: needs a copy of the published code, --published FOLDER")
        return []
    task = load_task("published-proxy", data=options.data)
    data = task.load()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, _begin, (options.published, options.data)) as process:
        return _compare(task, data, process)


def _compare(task: Task, data: Data, process: ProcessPoolExecutor) -> list[Figure]:
    genomes = process.submit(_sample, task).result()
    _ours(task, data, STANDARD, 0)  # imports and first calls
    process.submit(_evaluate, STANDARD, 0).result()
    print(f"\n{task.name}, {task.data}: core-seconds of one evaluation, {GENOMES} genomes in turn")
    print(f"  {'published':>10}{'ours':>8}{'ratio':>8}  accuracies   operations")
    ours, theirs = [], []
    for number, chromosome in enumerate(genomes):
        accuracy, seconds = _ours(task, data, chromosome, number)
        their_accuracy, their_seconds = process.submit(_evaluate, chromosome, number).result()
        ours.append(seconds)
        theirs.append(their_seconds)
        operations = ", ".join(node["op"] for node in chromosome["graph_def"])
        print(
            f"  {their_seconds:10.2f}{seconds:8.2f}{their_seconds / seconds:8.2f}  "
            f"{their_accuracy:.3f} {accuracy:.3f}  {operations}",
            flush=True,
        )
    whole = sum(theirs) / sum(ours)
    low, middle, high = statistics.quantiles([a / b for a, b in zip(theirs, ours, strict=True)])
    print(
        f"  all: {sum(theirs):.1f} core-seconds against {sum(ours):.1f}, {whole:.2f} times; "
        f"genome by genome {middle:.2f} ({low:.2f} to {high:.2f})"
    )
    return [
        Figure(f"published / ours, {GENOMES} genomes", whole, TIMES, low, high),
        Figure("published / ours, median genome", middle, TIMES, low, high),
    ]


def _ours(task: Task, data: Data, chromosome: Any, seed: int) -> tuple[float, float]:
    """Accuracy and core-seconds; trained and judged as in a search."""
    before = _core_seconds()
    resolved = task.resolve(Genome.from_dict(chromosome))
    trial = Trial(resolved.key, resolved.genome, training_seed(0, "published", seed))
    found = train_candidate(trial, task, data)
    return found.metrics.get("accuracy", float("nan")), _core_seconds() - before


def _begin(folder: Path, data: str) -> None:
    """What the process of the published code begins with."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    multiprocessing.set_start_method("fork", force=True)  # of loaders, as where nobody spawns
    task = load_task("published-proxy", data=data)
    Theirs.here = Theirs(folder, task.load())


def _sample(task: Task) -> list[Any]:
    assert Theirs.here is not None
    return Theirs.here.sample(task)


def _evaluate(chromosome: Any, seed: int) -> tuple[float, float]:
    """The published code's accuracy, and its core-seconds."""
    assert Theirs.here is not None
    before = _core_seconds()
    accuracy = Theirs.here.evaluate(chromosome, seed)
    return accuracy, _core_seconds() - before


class Theirs:
    """The published code, on our images."""

    here: Theirs | None = None

    def __init__(self, folder: Any, data: Data) -> None:
        sys.path.insert(0, str(folder))
        self.proxy = import_module("src.evaluation.proxy_tasks")
        self.mutate = import_module("src.search_algorithm.mutation_operators").mutate_chromosome
        self.proxy.CIFAR10 = _serving(data)
        fitness = import_module("src.evaluation.fitness").FitnessCalculator
        with contextlib.redirect_stdout(io.StringIO()):
            self.fitness = fitness()

    def evaluate(self, chromosome: Any, seed: int) -> float:
        """Train and judge; gives the accuracy."""
        torch.manual_seed(seed)
        with contextlib.redirect_stdout(io.StringIO()):
            return float(self.fitness.calculate_fitness(chromosome)[0])

    def sample(self, task: Task) -> list[Any]:
        """Chromosomes that both systems can train, no mechanism twice."""
        random.seed(0)
        x, found, seen = torch.randn(2, task.sizes.tokens, task.sizes.dim), [], set()
        while len(found) < GENOMES:
            chromosome: Any = STANDARD
            for _ in range(random.randint(1, MOST_MUTATIONS)):
                chromosome = self.mutate(chromosome)
            try:
                genome = Genome.from_dict(chromosome)
                make_plan(genome)
                key = task.resolve(genome).key
            except NasError:
                continue
            if key not in seen and self._can_train(chromosome, x):
                seen.add(key)
                found.append(chromosome)
        return found

    def _can_train(self, chromosome: Any, x: torch.Tensor) -> bool:
        if not self.fitness._is_graph_valid(chromosome["graph_def"]):
            return False
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self.proxy.ProxyVisionTransformer(chromosome=chromosome).encoder(x)
        except Exception:  # whatever it is, this genome is not for them
            return False
        return True


def _serving(data: Data) -> Any:
    """What stands for torchvision's class: the same images, one by one."""

    def images(root: str, train: bool, download: bool, transform: Any) -> PerImage:
        return PerImage(data, "train" if train else "validation", transform)

    return images


def _core_seconds() -> float:
    """Of this process and of its children that have ended, such as loaders' workers."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
