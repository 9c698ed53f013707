"""Genomes a core-second: judged, sampled, varied, made canonical, digested."""

from __future__ import annotations

import argparse
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.figures import Figure, interleaved, rate
from nas.genome.canonical import canonicalise, digest
from nas.space import load_space
from nas.space.validation import load_policy, validate
from nas.space.variation import Variation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nas.genome import Genome

SPACES: Final = ("quickstart", "attention_v1", "attention_v2")
COUNT: Final = 5_000
ROUNDS: Final = 5


def validator(options: argparse.Namespace) -> list[Figure]:
    """Types plus policy, variation and names of distinct genomes; nothing is kept in between."""
    print(f"\ngenomes a core-second, best of {ROUNDS} rounds over distinct genomes")
    print(
        f"{'space':16}{'genomes':>9}{'nodes':>7}{'judged/s':>11}{'sampled/s':>11}"
        f"{'varied/s':>11}{'canonical/s':>13}{'digests/s':>11}"
    )
    figures = []
    for name in SPACES:
        genomes, found = _measure(name)
        nodes = mean(len(g.nodes) for g in genomes)
        judged, sampled, varied, canonical, digested = (f.value for f in found)
        print(
            f"{name:16}{len(genomes):9,}{nodes:7.1f}{judged:11,.0f}{sampled:11,.0f}"
            f"{varied:11,.0f}{canonical:13,.0f}{digested:11,.0f}"
        )
        figures += found
    return figures


def _measure(name: str) -> tuple[list[Genome], list[Figure]]:
    """A space's genomes, and the rates of what is done with them."""
    space = load_space(name)
    policy = load_policy(space.policy)
    variation = Variation(space, policy)
    genomes = list({digest(g): g for g in _drawn(variation, COUNT)}.values())
    works: dict[str, Callable[[], object]] = {
        "judged": partial(_each, genomes, partial(validate, policy=policy)),
        "sampled": partial(_drawn, variation, len(genomes)),
        "varied": partial(_crossed, variation, genomes),
        "canonicalised": partial(_each, genomes, canonicalise),
        "digested": partial(_each, genomes, digest),
    }
    return genomes, [
        rate(f"{name}: {work}", len(genomes), samples, "genomes/s")
        for work, samples in interleaved(works, ROUNDS).items()
    ]


def _drawn(variation: Variation, count: int) -> list[Genome]:
    """Samples, each mutated once."""
    rng = np.random.default_rng(0)
    return [variation.mutate(variation.sample(rng), rng)[0] for _ in range(count)]


def _crossed(variation: Variation, genomes: Sequence[Genome]) -> None:
    """A child of each genome and its neighbour, mutated once."""
    rng = np.random.default_rng(0)
    for a, b in zip(genomes, (*genomes[1:], genomes[0]), strict=True):
        variation.mutate(variation.crossover(a, b, rng)[0], rng)


def _each(genomes: Sequence[Genome], work: Callable[[Genome], object]) -> None:
    for genome in genomes:
        work(genome)
