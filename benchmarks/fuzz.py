"""Hostile inputs of all kinds: how many ended well, the slowest, the largest; faults by name."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Figure
from benchmarks.fuzzing.running import KINDS, Input, inputs, one
from benchmarks.fuzzing.watching import MAX_BYTES, MAX_SECONDS


def fuzz(options: argparse.Namespace) -> list[Figure]:
    """Run so many inputs, or the one that is named, and print what they did."""
    os.environ["NO_COLOR"] = "1"
    began, found = time.process_time(), defaultdict[str, list[Input]](list)
    with TemporaryDirectory(prefix="nas-fuzz-") as name:
        folder = Path(name)
        if options.kind is not None:
            works = iter([one(options.kind, options.seed, options.number, folder)])
        else:
            works = inputs(options.inputs, options.seed, folder)
        for each in works:
            found[each.kind].append(each)
            for fault in each.seen.faults:
                print(f"{each.name}\n    {fault}", file=sys.stderr)
    _print(found)
    every = [each for own in found.values() for each in own]
    faults = sum(bool(each.seen.faults) for each in every)
    print(
        f"{len(every):,} inputs, {faults} with a fault, in {time.process_time() - began:.0f} "
        f"core-seconds; limits: {MAX_SECONDS:g} s and {MAX_BYTES / 1e6:.0f} MB an input"
    )
    return []


def _print(found: dict[str, list[Input]]) -> None:
    head = f"{'kind':12}{'inputs':>8}{'taken':>8}{'refused':>9}{'faults':>8}"
    print(f"\n{head}{'mean ms':>9}{'slowest s':>11}{'most MB':>9}")
    for kind in (kind for kind in KINDS if kind in found):
        seen = [each.seen for each in found[kind]]
        taken = sum(one.outcome == "taken" and not one.faults for one in seen)
        refused = sum(one.outcome == "refused" for one in seen)
        print(
            f"{kind:12}{len(seen):8,}{taken:8,}{refused:9,}{sum(bool(s.faults) for s in seen):8}"
            f"{1e3 * sum(s.seconds for s in seen) / len(seen):9.1f}"
            f"{max(s.seconds for s in seen):11.2f}{max(s.bytes for s in seen) / 1e6:9.0f}"
        )
