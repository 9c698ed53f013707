"""Run hostile inputs of all kinds: counts of outcomes, largest time and memory, and faults."""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.fuzzing.running import KINDS, Input, run_input, run_inputs
from benchmarks.fuzzing.watching import MAX_BYTES, MAX_SECONDS


def fuzz(options: argparse.Namespace) -> list[Figure]:
    """Run the inputs, or the named one, and print a table of their outcomes."""
    os.environ["NO_COLOR"] = "1"
    start, results = _core_seconds(), defaultdict[str, list[Input]](list)
    with TemporaryDirectory(prefix="nas-fuzz-") as name:
        folder = Path(name)
        if options.number is not None:
            works = iter([run_input(options.kind, options.seed, options.number, folder)])
        else:
            works = run_inputs(options.inputs, options.seed, folder, options.kind)
        for each in works:
            results[each.kind].append(each)
            for fault in each.observation.faults:
                print(f"{each.name}\n    {fault}", file=sys.stderr)
    _print(results)
    all_results = [each for group in results.values() for each in group]
    faults = sum(bool(each.observation.faults) for each in all_results)
    print(
        f"{len(all_results):,} inputs, {faults} with a fault, in {_core_seconds() - start:.0f} "
        f"core-seconds; limits: {MAX_SECONDS:g} s and {MAX_BYTES / 1e6:.0f} MB per input"
    )
    return []


def _core_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    return sum(os.times()[:4])


def _print(results: dict[str, list[Input]]) -> None:
    head = f"{'kind':12}{'inputs':>8}{'accepted':>10}{'refused':>9}{'faults':>8}"
    print(f"\n{head}{'mean ms':>9}{'slowest s':>11}{'most MB':>9}")
    for kind in (kind for kind in KINDS if kind in results):
        observations = [each.observation for each in results[kind]]
        accepted = sum(s.outcome == "accepted" and not s.faults for s in observations)
        refused = sum(s.outcome == "refused" for s in observations)
        faulty = sum(bool(s.faults) for s in observations)
        most_bytes = max(s.bytes for s in observations)
        print(
            f"{kind:12}{len(observations):8,}{accepted:10,}{refused:9,}{faulty:8}"
            f"{1e3 * sum(s.seconds for s in observations) / len(observations):9.1f}"
            f"{max(s.seconds for s in observations):11.2f}{most_bytes / 1e6:9.0f}"
        )
