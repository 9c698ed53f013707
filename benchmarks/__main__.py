"""Measure what docs/benchmarks.md quotes. Nothing here passes or fails; it prints tables.

    python -m benchmarks --help                   what there is to measure
    python -m benchmarks kernels evaluation --data imagefolder:PATH --history FILE

Shared machines are noisy: what is compared takes turns, processor time counts, and of it the
fastest round. A table at the end has every figure with its spread.
"""

from __future__ import annotations

import argparse
import platform
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import torch

from benchmarks.figures import print_table, remember
from nas.common.processor import processor_name

# Each is the function of its name in the module of its name.
BENCHMARKS: Final = {
    "validator": "genomes judged, varied, named a second",
    "kernels": "each mechanism against its naive form",
    "memory": "peak memory of 4,096 tokens",
    "timing": "predicted times against measured ones",
    "sqa": "Sparse Query Attention's claim, on one thread",
    "evaluation": "our training against plain PyTorch",
    "sequences": "the same on tokens",
    "reviews": "what TF-IDF tells of texts, --data textfolder:PATH",
    "search": "core-seconds a mechanism of a whole search",
    "versions": "the same of two versions, in turn",
    "published": "the published evaluation, 30 genomes in turn",
    "gpu": "training and long sequences on a CUDA device",
    "peers": "other optimisers beside ours, equal trainings",
    "beliefs": "estimates and probabilities against the truth",
    "utilisation": "up to 1,000 simulated workers that replay a table",
    "dispatch": "the driver's time with 1,000 simulated workers",
    "chaos": "a search on a Ray cluster whose nodes are killed",
    "kills": "a run whose process is killed through its whole life",
    "exports": "random genomes through every export",
    "fuzz": "hostile inputs of all kinds: none raises, takes long, grows or writes elsewhere",
    "page": "a report of 10,000 and 100,000 mechanisms, in a browser",
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
        measure = getattr(import_module(f"benchmarks.{name}"), name)
        results[name] = measure(options)
        if options.history is not None:
            remember(options.history, name, results[name], machine)
    if not options.json:
        print_table(results)


def _options() -> argparse.Namespace:
    about = "\n".join(f"  {name:12}{what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"benchmarks:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="by default all of them")
    parser.add_argument("--data", default="cifar10", help="images to train on: as for `nas search`")
    parser.add_argument("--seeds", type=int, default=5, help="of evaluation and peers")
    parser.add_argument("--rounds", type=int, default=15, help="of kernels, timing, sqa and gpu")
    parser.add_argument(
        "--genome",
        action="append",
        default=[],
        metavar="SOURCE",
        help="one more for gpu; timing of it alone",
    )
    parser.add_argument("--decode", action="store_true", help="timing of decoding in its place")
    parser.add_argument(
        "--published", type=Path, metavar="FOLDER", help="a copy of the published code"
    )
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="a checkout of another version, for versions"
    )
    parser.add_argument(
        "--history", type=Path, metavar="FILE", help="append figures, a line of JSON a benchmark"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="of peers and exports: keeps what is finished"
    )
    parser.add_argument("--kills", type=int, default=10, help="of nodes in chaos, of runs in kills")
    parser.add_argument("--seed", type=int, default=0, help="of kills and fuzz")
    parser.add_argument("--genomes", type=int, default=1000, help="of exports, beside the named")
    of_peers = parser.add_argument_group("of peers")
    of_peers.add_argument("--table", default="attention-bench", help="by name or path")
    of_peers.add_argument("--algorithms", metavar="NAMES", help="with commas; by default all")
    of_peers.add_argument("--budget", type=int, default=600, help="trainings of each search")
    of_peers.add_argument("--free", action="store_true", help="equal mechanisms cost nothing")
    of_peers.add_argument("--plot", type=Path, metavar="FILE", help="the curves as a picture")
    of_peers.add_argument("--json", action="store_true", help="their results, no table")
    of_chaos = parser.add_argument_group("of chaos")
    of_chaos.add_argument("--period", type=float, default=20.0, help="seconds between them")
    of_chaos.add_argument("--gens", type=int, default=12, help="of 12 trainings each")
    of_fuzz = parser.add_argument_group("of fuzz")
    of_fuzz.add_argument("--inputs", type=int, default=20_000)
    of_fuzz.add_argument("--kind", help="with --number: the one input of that name")
    of_fuzz.add_argument("--number", type=int, default=0)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; expected {', '.join(BENCHMARKS)}")
    return options


if __name__ == "__main__":
    main()
