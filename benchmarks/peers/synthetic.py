"""Synthetic trainings over the space attention_bench, for tests without a table.

The quality of a mechanism is a sum of random effects of its operations, edges and projections. A
training adds normal noise.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache
from typing import Final

import numpy as np

from benchmarks.peers.problem import Score, bench
from nas.genome import FLAGS, Genome, Ref

NOISE: Final = 0.006  # standard deviation of one training's accuracy


class Landscape:
    """Synthetic trainings; ``salt`` seeds all effects and noise."""

    most_trainings = math.inf

    def __init__(self, salt: int) -> None:
        self.bench, self.salt = bench(), salt

    def truth(self, key: str) -> Score:
        """Return the negated accuracy without noise, and MACs."""
        genome, macs = self.bench.mechanisms[key]
        return -0.1 - 0.5 / (1 + math.exp(-0.5 * (total_effect(genome, self.salt) - 1))), macs

    def evaluate(self, key: str, repeat: int) -> Score:
        """Return the negated accuracy with noise, and MACs."""
        quality, macs = self.truth(key)
        return quality + NOISE * normal("noise", self.salt, key, repeat), macs


def total_effect(genome: Genome, salt: int) -> float:
    """Return the sum of the effects of a genome's parts."""

    def name(ref: Ref) -> str:
        return ref if isinstance(ref, str) else genome.nodes[ref].op

    total = 0.0
    for node in genome.nodes:
        total += 0.5 * normal(salt, node.op, node.params)
        for slot, ref in enumerate(node.inputs):
            total += 0.5 * normal(salt, node.op, slot, name(ref))
            inner = genome.nodes[ref].inputs if isinstance(ref, int) else ()
            total += 0.35 * sum(normal(salt, node.op, name(ref), name(r)) for r in inner)
    has = (flag for flag in FLAGS if getattr(genome.projections, flag))
    return total + sum(0.4 + 0.2 * normal(salt, flag) for flag in has)


@cache
def normal(*parts: object) -> float:
    """Return a normal number that depends on ``parts`` alone."""
    raw = hashlib.sha256(repr(parts).encode()).digest()
    return float(np.random.default_rng(int.from_bytes(raw[:8], "big")).standardnormal())
