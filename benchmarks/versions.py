"""Whole searches of this version and of another one, on the same mechanisms, alternately.

``--before FOLDER`` is a checkout of the other version, which runs with the same installed packages.
``nas search`` runs in a separate process, one generation on one worker. Its samples are replaced by
samples of attention_v1 drawn here, so that both versions train the same mechanisms. Core-seconds
are counted as in ``search``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.figures import Figure, ratio
from benchmarks.search import SPACE, TASK, core_seconds_of
from nas.compiler import resolve
from nas.genome.mechanisms import mechanism
from nas.space import load_space
from nas.space.validation import load_policy
from nas.space.variation import Variation
from nas.tasks import load_task

MECHANISMS: Final = 24
ROUNDS: Final = 2
HERE: Final = Path(__file__).parents[1]

# A repeated sample is not a new mechanism, so the search draws the next one.
FIXED_SAMPLES: Final = """
import itertools, json, pathlib, sys
from nas.cli import main
from nas.genome import Genome
from nas.space.variation import Variation
genomes = json.loads(pathlib.Path(sys.argv.pop(1)).read_text())
samples = itertools.cycle([Genome.from_dict(genome) for genome in genomes])
Variation.sample = lambda self, rng: next(samples)
main()
"""


def versions(options: argparse.Namespace) -> list[Figure]:
    """Core-seconds per mechanism of both versions, and their ratio."""
    if options.before is None:
        print("\nversions: skipped; it needs a checkout of another version, --before FOLDER")
        return []
    print(f"\n{SPACE}, {TASK}: core-seconds per mechanism, {MECHANISMS} mechanisms, one worker")
    checkouts = {"before": options.before.resolve(), "now": HERE}
    taken: dict[str, list[float]] = {name: [] for name in checkouts}
    for number in range(ROUNDS):
        for name in checkouts if number % 2 == 0 else reversed(checkouts):
            taken[name].append(_search(checkouts[name], options.data))
            print(f"  {name:8}{taken[name][-1]:8.2f}", flush=True)
    return [ratio("now / before", taken["now"], taken["before"])]


def _search(checkout: Path, data: str) -> float:
    """Core-seconds per mechanism of one search."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "RAY_worker_niceness": "0"}
    with tempfile.TemporaryDirectory() as folder:
        genomes = Path(folder) / "genomes.json"
        genomes.write_text(json.dumps(_sample_genomes()), encoding="utf-8")
        options = {
            "space": SPACE, "task": TASK, "data": data, "pop": MECHANISMS, "gens": 1,
            "workers": 1, "seed": 0,
        }  # fmt: skip
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, "-c", FIXED_SAMPLES, str(genomes)]
        seconds = sum(
            core_seconds_of([*command, "search", *arguments], env=environment, cwd=folder).values()
        )
        process = subprocess.run(
            [*command, "runs", "--json"],
            env=environment, cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        counts = json.loads(process.stdout)["runs"][0]["counts"]
    trained = counts["evaluated"] - counts["failed"]
    assert trained == MECHANISMS, f"{checkout}: {trained} of {MECHANISMS} mechanisms were trained"
    return seconds / trained


def _sample_genomes() -> list[object]:
    """Distinct samples that also differ from the space's named mechanisms."""
    space = load_space(SPACE)
    sizes = load_task(TASK).sizes
    variation = Variation(space, load_policy(space.policy))
    rng = np.random.default_rng(1)
    named = [mechanism(name).genome for name in space.mechanisms]
    genomes = {resolve(genome, sizes).key: genome for genome in named}
    while len(genomes) < MECHANISMS:
        sample = variation.sample(rng)
        genomes.setdefault(resolve(sample, sizes).key, sample)
    return [genome.to_dict() for genome in list(genomes.values())[len(named) :]]
