"""Run the benchmarks of docs/benchmarks.md and print their tables. No benchmark passes or fails.

    python -m benchmarks --help                   list the benchmarks
    python -m benchmarks kernels evaluation --data imagefolder:PATH --history FILE

Timings on shared machines are noisy: compared implementations run alternately, and the processor
time of the fastest round is reported. The last table lists all figures with their spread.
"""

from __future__ import annotations

import argparse
import platform
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import torch

from benchmarks.figures import append_history, print_table
from nas.common.processor import processor_name

# Each name is a function in the module of that name, or in the module that ``MODULES`` names.
MODULES: Final = {
    "chunks": "kernels",
    **dict.fromkeys(("peers", "ablation", "rediscovery"), "peers.comparing"),
}
BENCHMARKS: Final = {
    "validator": "genomes validated, varied, digested per second",
    "duplicates": "random genomes that compute one function under two digests",
    "kernels": "each mechanism compared with its naive form",
    "chunks": "gates and the delta rule in chunks, compared with all pairs",
    "timing": "predicted and measured times",
    "evaluation": "our training compared with plain PyTorch",
    "search": "core-seconds per mechanism of a whole search",
    "published": "the published evaluation and ours, 30 genomes alternately",
    "gpu": "everything about a CUDA device, in eight minutes",
    "peers": "other optimisers and ours on the same trainings",
    "ablation": "the surrogate without one of its parts, on a table",
    "rediscovery": "trainings until the best mechanism of a table is reported",
    "judging": "simulated sessions of `nas judge`: false claims, and pairs until a claim",
    "beliefs": "bias and calibration of estimates and probabilities",
    "ranking": "agreement of short and long trainings, on a table",
    "target": "searches with a target task, replayed, --seeds orders",
    "driver": "processor time and memory of a search of simulated trainings",
    "chaos": "a search on a Ray cluster whose nodes are killed",
    "kills": "a run whose process is killed repeatedly",
    "exports": "exports of random genomes in all formats",
}


def main() -> None:
    """Run the named benchmarks, or all of them."""
    options = _options()
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)  # output may be followed in a file
    machine = {
        "processor": processor_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if not options.json:
        print(", ".join(f"{name} {value}" for name, value in machine.items()))
    results = {}
    for name in dict.fromkeys(options.names or BENCHMARKS):
        measure = getattr(import_module(f"benchmarks.{MODULES.get(name, name)}"), name)
        results[name] = measure(options)
        if options.history is not None:
            append_history(options.history, name, results[name], machine)
    if not options.json:
        print_table(results)


def _options() -> argparse.Namespace:
    about = "\n".join(f"  {name:12}{summary}" for name, summary in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"benchmarks:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help="default: all")
    parser.add_argument("--data", default="cifar10", help="images to train on: as for `nas search`")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--rounds", type=int, default=15, help="for kernels, timing, sqa and gpu")
    parser.add_argument(
        "--genome",
        action="append",
        default=[],
        metavar="SOURCE",
        help="a further genome for gpu; the only one for timing",
    )
    parser.add_argument(
        "--published", type=Path, metavar="FOLDER", help="a copy of the published code"
    )
    parser.add_argument(
        "--history", type=Path, metavar="FILE", help="append figures, one JSON line per benchmark"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="for claims, peers, exports: finished work"
    )
    parser.add_argument("--text", type=Path, metavar="FILE", help="for claims: the text of bytes")
    parser.add_argument("--workers", type=int, default=2, help="for claims: parallel trainings")
    parser.add_argument("--kills", type=int, default=10, help="for chaos (nodes) and kills (runs)")
    parser.add_argument(
        "--victim", choices=("command", "raylet"), default="command", help="for kills"
    )
    parser.add_argument("--seed", type=int, default=0, help="for kills and fuzz")
    parser.add_argument("--genomes", type=int, default=1000, help="for exports: random genomes")
    peers_group = parser.add_argument_group("peers")
    peers_group.add_argument("--table", default="attention-bench", help="a table, by name or path")
    peers_group.add_argument(
        "--algorithms", metavar="NAMES", help="separated by commas; default: all"
    )
    peers_group.add_argument("--budget", type=int, default=600, help="trainings per search")
    peers_group.add_argument(
        "--start",
        choices=("own", "random", "named"),
        default="own",
        help="first generation: of each algorithm, or the same for all",
    )
    peers_group.add_argument("--free", action="store_true", help="repeated mechanisms cost nothing")
    peers_group.add_argument(
        "--plot", type=Path, metavar="FILE", help="write the curves as a picture"
    )
    peers_group.add_argument("--json", action="store_true", help="print JSON, no table")
    gpu_group = parser.add_argument_group("gpu")
    gpu_group.add_argument("--part", action="append", help="a part; default: all")
    gpu_group.add_argument("--out", type=Path, default=Path("gpu.json"), help="figures as JSON")
    driver_group = parser.add_argument_group("driver")
    driver_group.add_argument("--trainings", type=int, default=5_280, help="simulated trainings")
    driver_group.add_argument("--population", type=int, default=24, help="of a generation")
    driver_group.add_argument("--lag", type=int, help="by default none")
    chaos_group = parser.add_argument_group("chaos")
    chaos_group.add_argument("--period", type=float, default=20.0, help="seconds between kills")
    chaos_group.add_argument("--gens", type=int, default=12, help="generations of 12 trainings")
    fuzz_group = parser.add_argument_group("fuzz")
    fuzz_group.add_argument("--inputs", type=int, default=20_000, help="number of inputs")
    fuzz_group.add_argument("--kind", help="inputs of this kind alone")
    fuzz_group.add_argument("--number", type=int, help="with --kind and --seed: one input")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; expected {', '.join(BENCHMARKS)}")
    return options


if __name__ == "__main__":
    main()
