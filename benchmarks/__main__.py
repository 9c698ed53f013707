"""Run the benchmarks of docs/benchmarks.md and print their tables. No benchmark passes or fails.

    python -m benchmarks --help                   list the benchmarks
    python -m benchmarks kernels evaluation --data imagefolder:PATH --json FILE

Timings on shared machines are noisy: compared implementations run alternately, and the processor
time of the fastest round is reported with the quartiles over the rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Final

import torch

from benchmarks.rows import print_rows, to_json
from nas.common.system import processor_name

# Each name is a function in the module of that name, or in the module that ``MODULES`` names.
MODULES: Final = dict.fromkeys(("peers", "ablation"), "peers.comparing")
BENCHMARKS: Final = {
    "evaluation": "our training compared with plain PyTorch",
    "search": "core-seconds per mechanism of a whole search",
    "published": "the published evaluation and ours, 30 genomes alternately",
    "kernels": "each mechanism compared with its naive form",
    "timing": "predicted and measured times",
    "duplicates": "random genomes that compute one function under two digests",
    "driver": "processor time and memory of a search of simulated trainings",
    "peers": "other optimisers and ours on the same trainings",
    "ablation": "the surrogate without one of its parts, on a table",
    "beliefs": "bias and calibration of estimates and probabilities",
    "ranking": "agreement of short and long trainings, on a table",
    "judging": "simulated sessions of `nas judge`: false claims, and pairs until a claim",
    "scaling": "simulated ladders: how often the intervals of speed-ups hold",
    "exports": "exports of random genomes in all formats",
    "chaos": "a search on a Ray cluster whose nodes are killed",
    "kills": "a run whose process is killed repeatedly",
    "gpu": "everything about a CUDA device, in eight minutes",
}


def main() -> None:
    """Run the named benchmarks, or all of them."""
    options = _options()
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)  # output may be followed in a file
    machine = {
        "processor": processor_name(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    tables = {}
    for name in dict.fromkeys(options.names or BENCHMARKS):
        measure = getattr(import_module(f"benchmarks.{MODULES.get(name, name)}"), name)
        print(f"\n{name}: {BENCHMARKS[name]}")
        tables[name] = to_json(print_rows(measure(options)))
        if options.json is not None:
            text = json.dumps({"machine": machine, "tables": tables}, indent=1)
            options.json.write_text(text + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    about = "\n".join(f"  {name:12}{summary}" for name, summary in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"benchmarks:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="name", choices=[*BENCHMARKS, []], help="default: all")
    add("--json", type=Path, metavar="FILE", help="write the tables as JSON")
    add("--data", default="cifar10", help="images to train on: as for `nas search`")
    add("--seeds", type=int, default=5, help="number of seeds")
    add("--rounds", type=int, default=15, help="for kernels, timing and gpu")
    add(
        "--genome",
        action="append",
        default=[],
        metavar="SOURCE",
        help="a further genome for gpu; the only one for timing",
    )
    add("--published", type=Path, metavar="FOLDER", help="a copy of the published code")
    add("--record", type=Path, metavar="FILE", help="for peers, exports: finished work")
    add("--kills", type=int, default=10, help="for chaos (nodes) and kills (runs)")
    add("--seed", type=int, default=0, help="for kills, judging, scaling and driver")
    add("--genomes", type=int, default=1000, help="for exports: random genomes")
    add = parser.add_argument_group("tables of trainings").add_argument
    add("--table", default="attention-bench", help="a table, by name or path")
    add("--algorithms", metavar="NAMES", help="separated by commas; default: all")
    add("--budget", type=int, default=200, help="trainings per search")
    add(
        "--start",
        choices=("own", "random", "named"),
        default="own",
        help="first generation: of each algorithm, or the same for all",
    )
    add = parser.add_argument_group("gpu").add_argument
    add("--part", action="append", help="a part; default: all")
    add("--out", type=Path, default=Path("gpu.json"), help="results as JSON")
    add = parser.add_argument_group("driver").add_argument
    add("--trainings", type=int, default=5_280, help="simulated trainings")
    add("--population", type=int, default=24, help="of a generation")
    add("--lag", type=int, help="by default none")
    add = parser.add_argument_group("chaos").add_argument
    add("--period", type=float, default=20.0, help="seconds between kills")
    add("--gens", type=int, default=12, help="generations of 12 trainings")
    return parser.parse_args()


if __name__ == "__main__":
    main()
