"""Measure how many genomes per core-second are validated, sampled, varied and digested."""

from __future__ import annotations

import argparse
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.figures import Figure, interleaved, rate
from nas.genome.canonical import canonicalise, digest
from nas.space import load_space
from nas.space.rules import load_policy, validate
from nas.space.vary import Variation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nas.genome import Genome

SPACES: Final = ("quickstart", "attention_v1", "attention_v2")
COUNT: Final = 5_000
ROUNDS: Final = 5


def validator(options: argparse.Namespace) -> list[Figure]:
    """Return rates of validation, sampling, variation and digests, without caches."""
    print(f"\ngenomes per core-second, best of {ROUNDS} rounds over distinct genomes")
    print(
        f"{'space':16}{'genomes':>9}{'nodes':>7}{'judged/s':>11}{'sampled/s':>11}"
        f"{'varied/s':>11}{'canonical/s':>13}{'digests/s':>11}"
    )
    figures = []
    for name in SPACES:
        genomes, rates = _measure(name)
        nodes = mean(len(g.nodes) for g in genomes)
        judged, sampled, varied, canonical, digested = (f.value for f in rates)
        print(
            f"{name:16}{len(genomes):9,}{nodes:7.1f}{judged:11,.0f}{sampled:11,.0f}"
            f"{varied:11,.0f}{canonical:13,.0f}{digested:11,.0f}"
        )
        figures += rates
    return figures


def _measure(name: str) -> tuple[list[Genome], list[Figure]]:
    """Return distinct genomes of a space, and the rate of each operation on them."""
    space = load_space(name)
    policy = load_policy(space.policy)
    variation = Variation(space, policy)
    genomes = list({digest(g): g for g in samples(variation, COUNT)}.values())
    works: dict[str, Callable[[], object]] = {
        "judged": partial(_apply, genomes, partial(validate, policy=policy)),
        "sampled": partial(samples, variation, len(genomes)),
        "varied": partial(_cross, variation, genomes),
        "canonicalised": partial(_apply, genomes, canonicalise),
        "digested": partial(_apply, genomes, digest),
    }
    return genomes, [
        rate(f"{name}: {work}", len(genomes), seconds, "genomes/s")
        for work, seconds in interleaved(works, ROUNDS).items()
    ]


def samples(variation: Variation, count: int) -> list[Genome]:
    """Return random samples, each mutated once."""
    rng = np.random.default_rng(0)
    return [variation.mutate(variation.sample(rng), rng)[0] for _ in range(count)]


def _cross(variation: Variation, genomes: Sequence[Genome]) -> None:
    """Cross each genome with the next one, and mutate the child once."""
    rng = np.random.default_rng(0)
    for a, b in zip(genomes, (*genomes[1:], genomes[0]), strict=True):
        variation.mutate(variation.crossover(a, b, rng)[0], rng)


def _apply(genomes: Sequence[Genome], work: Callable[[Genome], object]) -> None:
    for genome in genomes:
        work(genome)
