"""Measure what docs/benchmarks.md quotes. Nothing here passes or fails; it prints tables.

    python -m tests.benchmarks validator            genomes judged, varied, named a second
    python -m tests.benchmarks driver               a search without its trainings, a candidate
    python -m tests.benchmarks dispatch             what Ray adds to a training
    python -m tests.benchmarks kernels              each mechanism against its naive form
    python -m tests.benchmarks memory               peak memory of 4,096 tokens
    python -m tests.benchmarks additive             additive scores by the ways to write them
    python -m tests.benchmarks timing               predicted times against measured ones
    python -m tests.benchmarks sqa                  Sparse Query Attention's claim, on one thread
    python -m tests.benchmarks evaluation           our training against plain PyTorch
    python -m tests.benchmarks trainings            core-seconds of a training, mha and uniform
    python -m tests.benchmarks search               core-seconds a mechanism of a whole search
    python -m tests.benchmarks published            the published evaluation, 30 genomes in turn
    python -m tests.benchmarks gpu                  training and long sequences on a CUDA device
    python -m tests.benchmarks peers                other optimisers beside ours, equal trainings
    python -m tests.benchmarks --data imagefolder:PATH --history FILE       all of them

Evaluation, trainings, search, published and gpu train on the images that ``--data`` names. Shared
machines are noisy: what is compared takes turns, processor time counts, and of it the fastest
round. A table at the end has every figure with its spread; ``--history`` appends them to a file, a
line of JSON for each benchmark.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from nas.processor import processor_name
from tests.benchmarks.additive import additive
from tests.benchmarks.dispatch import dispatch
from tests.benchmarks.driver import driver
from tests.benchmarks.evaluation import evaluation
from tests.benchmarks.figures import Figure, print_table, remember
from tests.benchmarks.gpu import gpu
from tests.benchmarks.kernels import kernels
from tests.benchmarks.memory import memory
from tests.benchmarks.peers.comparing import peers
from tests.benchmarks.published import published
from tests.benchmarks.search import search
from tests.benchmarks.sqa import sqa
from tests.benchmarks.timing import timing
from tests.benchmarks.trainings import trainings
from tests.benchmarks.validator import validator

BENCHMARKS: Final[dict[str, Callable[[argparse.Namespace], list[Figure]]]] = {
    "validator": validator,
    "driver": driver,
    "dispatch": dispatch,
    "kernels": kernels,
    "memory": memory,
    "additive": additive,
    "timing": timing,
    "sqa": sqa,
    "evaluation": evaluation,
    "trainings": trainings,
    "search": search,
    "published": published,
    "gpu": gpu,
    "peers": peers,
}


def main() -> None:
    """Run the benchmarks that were named, or all of them."""
    options = _options()
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)  # long work is watched through a file, too
    machine = {
        "processor": processor_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if not options.json:
        print(", ".join(f"{name} {value}" for name, value in machine.items()))
    results = {}
    for name in dict.fromkeys(options.names or BENCHMARKS):
        results[name] = BENCHMARKS[name](options)
        if options.history is not None:
            remember(options.history, name, results[name], machine)
    if not options.json:
        print_table(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--data", default="cifar10", help="as for `nas evaluate`")
    parser.add_argument("--seeds", type=int, default=5, help="of evaluation, trainings and peers")
    parser.add_argument(
        "--rounds", type=int, default=15, help="of kernels, additive, timing and sqa"
    )
    parser.add_argument(
        "--genome", action="append", default=[], metavar="SOURCE", help="one more for gpu"
    )
    parser.add_argument(
        "--published", type=Path, metavar="FOLDER", help="a copy of the published code"
    )
    parser.add_argument("--history", type=Path, metavar="FILE", help="append figures to this file")
    parser.add_argument("--json", action="store_true", help="of peers: their results, no table")
    options = parser.parse_args()
    if options.json and options.names != ["peers"]:
        parser.error("--json is for peers alone")
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; expected {', '.join(BENCHMARKS)}")
    return options


if __name__ == "__main__":
    main()
