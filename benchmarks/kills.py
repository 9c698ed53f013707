"""The whole life of a run, its process killed at random moments, beside a life without a kill.

Each life goes on to its end with the commands that a person would type, and must come to what the
calm one came to; each fourth life trains on a worker of Ray's. The seed draws the moments; how busy
the machine is says what they meet.
"""

from __future__ import annotations

import argparse
import importlib
import math
import random
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Figure
from benchmarks.life import (
    BACKENDS,
    EXPORTING,
    IMPORTED,
    MAY_NOT_BE,
    PHASES,
    REFERENCES,
    RESUMING,
    Life,
    Pace,
)

EACH: Final = 4  # kills in a phase of a life, at most
RAYS: Final = 4  # one life of so many
AT_START: Final = 0.25  # of them are drawn from the start of the command


def kills(options: argparse.Namespace) -> list[Figure]:
    """Kill whole lives of a run, as often as is asked for, and count what that did."""
    for name in IMPORTED:
        importlib.import_module(name)
    draws, found, lives, slowest = random.Random(options.seed), Counter[str](), 0, 0.0
    with TemporaryDirectory() as name:
        calm = {backend: Life(Path(name) / backend, backend) for backend in BACKENDS}
        paces = {backend: life.undisturbed() for backend, life in calm.items()}
        while found["kills"] < options.kills:
            backend = BACKENDS[lives % RAYS == RAYS - 1]
            life = Life(Path(name) / str(lives), backend)
            under_fire(life, draws, paces[backend], options.kills - found["kills"])
            life.judge(calm[BACKENDS[0]])
            found += life.found
            found[f"kills: by {backend}"] += life.found["kills"]
            lives, slowest = lives + 1, max(slowest, life.slowest)
            sys.stderr.write(f"{lives} lives: {dict(found)}\n")
            if not life.found["kills"]:  # the machine is too busy to be met
                break
    places = ("start", *(phase.name for phase in PHASES), *(f"by {one}" for one in BACKENDS))
    names = ("kills", *(f"kills: {place}" for place in places), *MAY_NOT_BE, "temporary files")
    facts = {"lives": lives} | {name: found[name] for name in names}
    figures = [Figure(name, value, "", value, value) for name, value in facts.items()]
    return [*figures, Figure("until all is gone", slowest, "s", 0.0, slowest)]


def under_fire(life: Life, draws: random.Random, paces: dict[str, Pace], most: int) -> None:
    """Bring a life to its end, with so many kills at most."""
    each = min(EACH, math.ceil(most / len(PHASES)))
    for phase in PHASES:
        for _ in range(each):
            if life.found["kills"] == most or (phase is REFERENCES and life.has_run()):
                break
            # The first step of a search is late, by its references; an export's is its last one.
            start = paces[(EXPORTING if phase is EXPORTING else RESUMING).name].first
            is_start = phase is EXPORTING or draws.random() < AT_START
            longest = start if is_start else 2 * paces[phase.name].step
            if not life.is_killed(phase, draws.uniform(0.0, longest), is_start=is_start):
                break
            place = "start" if is_start and phase is not EXPORTING else phase.name
            life.found.update(["kills", f"kills: {place}"])
            sys.stderr.write(f"killed: {phase.name}; {dict(life.found)}\n")  # long work is watched
        if phase is not REFERENCES:  # its command goes on with recording
            life.finish(phase)
