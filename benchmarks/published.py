"""Compare the published evaluation with ours: thirty genomes, the same images, one thread.

``--published FOLDER`` is a copy of the published code, rezighamza/Evolving-Attention
(docs/benchmarks.md used commit b5b18f9), whose dependencies must be installed. The code runs
unchanged with its own loaders in a separate process, without our settings of the C library. Only
its data set is replaced: ours gives the images of our task as PIL images, with its own transform.
Genomes are drawn by its mutations from standard attention. Both systems can train all of them, and
their digests are distinct.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import random
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch

from benchmarks.interleaving import median_ratio
from benchmarks.plain import PerImage
from benchmarks.rows import Row
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


def published(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the core-seconds of both systems, measured alternately on each genome."""
    if options.published is None:
        print("skipped; it needs a copy of the published code, --published FOLDER")
        return
    task = load_task("published-proxy", data=options.data)
    data = task.load()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, _initialise, (options.published, options.data)) as process:
        genomes = process.submit(_sample, task).result()
        _ours(task, data, STANDARD, 0)  # imports and first calls
        process.submit(_evaluate, STANDARD, 0).result()
        ours, theirs = [], []
        for number, chromosome in enumerate(genomes):
            accuracy, seconds = _ours(task, data, chromosome, number)
            their_accuracy, their_seconds = process.submit(_evaluate, chromosome, number).result()
            assert their_accuracy > 0, "the published code could not train on these images"
            ours.append(seconds)
            theirs.append(their_seconds)
            yield {
                "published, s": their_seconds,
                "ours, s": seconds,
                "ratio": their_seconds / seconds,
                "published accuracy": their_accuracy,
                "our accuracy": accuracy,
                "operations": ", ".join(node["op"] for node in chromosome["graph_def"]),
            }
    yield {
        "published, s": sum(theirs),
        "ours, s": sum(ours),
        "ratio of sums": sum(theirs) / sum(ours),
        "median ratio": median_ratio(theirs, ours),
    }


def _ours(task: Task, data: Data, chromosome: Any, seed: int) -> tuple[float, float]:
    """Train as in a search; return accuracy and core-seconds."""
    before = _core_seconds()
    resolved = task.resolve(Genome.from_dict(chromosome))
    trial = Trial(resolved.key, resolved.genome, training_seed(0, "published", seed))
    result = train_candidate(trial, task, data)
    return result.metrics.get("accuracy", float("nan")), _core_seconds() - before


def _initialise(folder: Path, data: str) -> None:
    """Initialise the process of the published code."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    multiprocessing.set_start_method("fork", force=True)  # for its loaders
    task = load_task("published-proxy", data=data)
    Theirs.instance = Theirs(folder, task.load())


def _sample(task: Task) -> list[Any]:
    assert Theirs.instance is not None
    return Theirs.instance.sample(task)


def _evaluate(chromosome: Any, seed: int) -> tuple[float, float]:
    """Train by the published code; return accuracy and core-seconds."""
    assert Theirs.instance is not None
    before = _core_seconds()
    accuracy = Theirs.instance.evaluate(chromosome, seed)
    return accuracy, _core_seconds() - before


class Theirs:
    """The published code, with our images."""

    instance: Theirs | None = None

    def __init__(self, folder: Any, data: Data) -> None:
        sys.path.insert(0, str(folder))
        self.proxy = import_module("src.evaluation.proxy_tasks")
        self.mutate = import_module("src.search_algorithm.mutation_operators").mutate_chromosome
        self.proxy.CIFAR10 = _dataset_class(data)
        fitness = import_module("src.evaluation.fitness").FitnessCalculator
        with contextlib.redirect_stdout(io.StringIO()):
            self.fitness = fitness()

    def evaluate(self, chromosome: Any, seed: int) -> float:
        """Train and validate; return the accuracy."""
        torch.manual_seed(seed)
        with contextlib.redirect_stdout(io.StringIO()):
            return float(self.fitness.calculate_fitness(chromosome)[0])

    def sample(self, task: Task) -> list[Any]:
        """Return distinct chromosomes that both systems can train."""
        random.seed(0)
        x, chromosomes, keys = torch.randn(2, task.sizes.tokens, task.sizes.dim), [], set()
        while len(chromosomes) < GENOMES:
            chromosome: Any = STANDARD
            for _ in range(random.randint(1, MOST_MUTATIONS)):
                chromosome = self.mutate(chromosome)
            try:
                genome = Genome.from_dict(chromosome)
                make_plan(genome)
                key = task.resolve(genome).key
            except NasError:
                continue
            if key not in keys and self._can_train(chromosome, x):
                keys.add(key)
                chromosomes.append(chromosome)
        return chromosomes

    def _can_train(self, chromosome: Any, x: torch.Tensor) -> bool:
        if not self.fitness._is_graph_valid(chromosome["graph_def"]):
            return False
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self.proxy.ProxyVisionTransformer(chromosome=chromosome).encoder(x)
        except Exception:  # the published code cannot train this genome
            return False
        return True


def _dataset_class(data: Data) -> Any:
    """Return a replacement of torchvision's CIFAR10 class with our images."""

    def images(root: str, train: bool, download: bool, transform: Any) -> PerImage:
        return PerImage(data, "train" if train else "validation", transform)

    return images


def _core_seconds() -> float:
    """Return the processor time of this process and its finished children, such as loaders."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
