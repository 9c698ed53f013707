"""Measure what README quotes. Nothing here passes or fails; it prints a table.

    python -m tests.benchmarks validator            genomes judged a second, on one core
    python -m tests.benchmarks trainings            core-seconds of a training, mha and uniform
    python -m tests.benchmarks trainings --data imagefolder:PATH --seeds 5
    python -m tests.benchmarks sqa                  Sparse Query Attention's claim, on one thread
    python -m tests.benchmarks additive             additive scores by the ways to write them

Shared machines are noisy: figures are the best of several rounds for what computes the same each
time, and mean and standard error over seeds for trainings, which alternate.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from statistics import mean, stdev

import numpy as np
import torch

from nas.canonical import digest
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.study import study
from nas.genome import Genome
from nas.mechanisms import MECHANISMS
from nas.space import load_space
from nas.tasks import load_images, load_task
from nas.validation import Policy, load_policy, validate
from nas.variation import Variation
from tests.benchmarks.additive import additive
from tests.benchmarks.sqa import sqa


def main() -> None:
    """Run the benchmarks that were named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", help=", ".join(BENCHMARKS))
    parser.add_argument("--data", default="cifar10", help="as for `nas evaluate`")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15, help="of sqa and additive")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )
    for name in options.names or BENCHMARKS:
        BENCHMARKS[name](options)


def validator(options: argparse.Namespace, count: int = 5_000, rounds: int = 5) -> None:
    """Types plus policy on distinct parsed genomes; nothing is kept from one to the next."""
    print("\ngenomes a core-second, best of", rounds, "rounds over distinct genomes")
    print(
        f"{'space':16}{'genomes':>9}{'nodes':>7}{'judged/s':>11}{'sampled/s':>11}{'digests/s':>11}"
    )
    for name in ("quickstart", "attention_v1", "attention_v2"):
        space = load_space(name)
        policy = load_policy(space.policy)
        variation, rng = Variation(space, policy), np.random.default_rng(0)
        start = time.process_time()
        drawn = [variation.mutate(variation.sample(rng), rng)[0] for _ in range(count)]
        sampled = count / (time.process_time() - start)
        genomes = list({digest(g): g for g in drawn}.values())
        best = min(_seconds(partial(_judge, genomes, policy)) for _ in range(rounds))
        digested = min(_seconds(partial(_digest, genomes)) for _ in range(2))
        nodes = mean(len(g.nodes) for g in genomes)
        print(
            f"{name:16}{len(genomes):9,}{nodes:7.1f}{len(genomes) / best:11,.0f}{sampled:11,.0f}"
            f"{len(genomes) / digested:11,.0f}"
        )


def trainings(options: argparse.Namespace) -> None:
    """Core-seconds and accuracy of one training under each built-in task."""
    for name in ("vit-cifar10", "published-proxy"):
        task = load_task(name, data=options.data)
        evaluator = LocalEvaluator(task, load_images(task.data, task))
        print(f"\n{name}: {task.budget}, one core, {options.seeds} seeds")
        mechanisms = [(n, MECHANISMS[n].genome) for n in ("mha", "uniform")]
        trials = list(study(mechanisms, task, evaluator, repeats=options.seeds))
        scores: dict[str, list[float]] = {}
        for mechanism, _ in mechanisms:
            own = [t.evaluation for t in trials if t.name == mechanism]
            scores[mechanism] = [100 * e.objectives["accuracy"] for e in own]
            seconds = [e.core_seconds for e in own]
            print(
                f"  {mechanism:8} accuracy {_spread(scores[mechanism])} %   core-seconds "
                f"{min(seconds):.2f} to {max(seconds):.2f}"
            )
        gap = mean(scores["mha"]) - mean(scores["uniform"])
        error = sum(stdev(s) ** 2 / len(s) for s in scores.values()) ** 0.5
        print(f"  mha - uniform: {gap:.2f} points, {gap / error:.1f} standard errors")


def _judge(genomes: list[Genome], policy: Policy) -> None:
    for genome in genomes:
        validate(genome, policy)


def _digest(genomes: list[Genome]) -> None:
    for genome in genomes:
        digest(genome)


def _seconds(work: Callable[[], object]) -> float:
    """Processor time, which neighbours on a shared machine change little."""
    start = time.process_time()
    work()
    return time.process_time() - start


def _spread(values: list[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values) / len(values) ** 0.5:.2f}"


BENCHMARKS = {"validator": validator, "trainings": trainings, "sqa": sqa, "additive": additive}

if __name__ == "__main__":
    main()
