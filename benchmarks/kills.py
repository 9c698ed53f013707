"""Compare life cycles of a run whose process is killed at random times with one without kills.

Each life cycle is continued to its end with the usual commands and must give the results of the
undisturbed one. Every fourth one trains on a Ray worker. The seed draws the times of the kills; the
step that a kill interrupts also depends on the load of the machine.
"""

from __future__ import annotations

import argparse
import importlib
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.life import (
    BACKENDS,
    EXPORTING,
    IMPORTED,
    MUST_BE_ZERO,
    PHASES,
    RESUMING,
    Life,
    Pace,
)
from benchmarks.rows import Row

MOST_KILLS: Final = 4  # per phase of a life cycle
RAY_PERIOD: Final = 4  # every fourth life cycle uses Ray
START_SHARE: Final = 0.25  # of the kills are timed from the start of the command


def kills(options: argparse.Namespace) -> Iterator[Row]:
    """Kill ``options.kills`` times; yield the number of losses, repetitions and differences."""
    for name in IMPORTED:
        importlib.import_module(name)
    rng, counts, lives, slowest = random.Random(options.seed), Counter[str](), 0, 0.0
    with TemporaryDirectory() as name:
        references = {backend: Life(Path(name) / backend, backend) for backend in BACKENDS}
        paces = {backend: life.run_undisturbed() for backend, life in references.items()}
        while counts["kills"] < options.kills:
            backend = BACKENDS[lives % RAY_PERIOD == RAY_PERIOD - 1]
            life = Life(Path(name) / str(lives), backend)
            run_with_kills(life, rng, paces[backend], options.kills - counts["kills"])
            life.compare(references[BACKENDS[0]])
            counts += life.counts
            counts[f"kills: by {backend}"] += life.counts["kills"]
            lives, slowest = lives + 1, max(slowest, life.slowest)
            sys.stderr.write(f"{lives} lives: {dict(counts)}\n")
            if not life.counts["kills"]:  # every command ended before its kill: too much load
                break
    places = ["start", *(phase.name for phase in PHASES), *(f"by {name}" for name in BACKENDS)]
    names = ["kills", *(f"kills: {place}" for place in places), *MUST_BE_ZERO, "temporary files"]
    values = {"lives": lives} | {name: counts[name] for name in names}
    values["seconds until all processes ended"] = round(slowest)
    yield from ({"": name, "number": value} for name, value in values.items())


def run_with_kills(life: Life, rng: random.Random, paces: dict[str, Pace], most: int) -> None:
    """Run a life cycle to its end, with at most ``most`` kills."""
    per_phase = min(MOST_KILLS, math.ceil(most / len(PHASES)))
    for phase in PHASES:
        for _ in range(per_phase):
            if life.counts["kills"] == most:
                break
            # An export has a single step.
            start = paces[(EXPORTING if phase is EXPORTING else RESUMING).name].first
            is_start = phase is EXPORTING or rng.random() < START_SHARE
            longest = start if is_start else 2 * paces[phase.name].step
            if not life.kill(phase, rng.uniform(0.0, longest), is_start=is_start):
                break
            place = "start" if is_start and phase is not EXPORTING else phase.name
            life.counts.update(["kills", f"kills: {place}"])
            sys.stderr.write(f"killed: {phase.name}; {dict(life.counts)}\n")
        life.finish(phase)  # the next phase continues its command
