"""Searches beat random search on a landscape whose truth is known.

The landscape: each operation, each edge and each path of two edges of a genome has a fixed worth,
drawn from a hash, as in Kauffman's NK model; accuracy is a squashed sum. Parts matter together, so
that neighbours resemble each other without being alike. Costs are counted from the projections.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from functools import cache
from typing import Any

import pytest

from nas.common.pareto import hypervolume, normalise
from nas.genome import Genome, head_count
from nas.searching.results import TrialResult
from nas.space import load_space

WIDTH, HEADS = 64, 4
SEEDS = range(6)


@cache
def worth(*parts: object) -> float:
    """A standard normal number that is computed from a hash of the arguments."""
    raw = hashlib.sha256(repr(parts).encode()).digest()
    u, v = (int.from_bytes(raw[i : i + 7], "big") / 2**56 for i in (0, 7))
    return math.sqrt(-2 * math.log(u + 1e-12)) * math.cos(2 * math.pi * v)


def costs(genome: Genome, salt: int) -> tuple[float, float]:
    """The negated accuracy and the cost of a genome."""
    names = [node.op for node in genome.nodes]

    def name(ref: str | int) -> str:
        return ref if isinstance(ref, str) else names[ref]

    total, macs = 0.0, 0.0
    for node in genome.nodes:
        total += 0.5 * worth(salt, node.op, node.params)
        macs += WIDTH * (5 + 20 * abs(worth(node.op, node.params)))
        for slot, ref in enumerate(node.inputs):
            total += 0.5 * worth(salt, node.op, slot, name(ref))
            inner = genome.nodes[ref].inputs if isinstance(ref, int) else ()
            total += 0.35 * sum(worth(salt, node.op, name(ref), name(r)) for r in inner)
    p = genome.projections
    for flag, label in (
        (p.has_wq, p.q_heads),
        (p.has_wk, p.kv_heads),
        (p.has_wv, p.kv_heads),
        (p.has_wo, "all"),
    ):
        part = head_count(label, HEADS) / HEADS if flag else 0.0
        macs += WIDTH**2 * part
        total += 0.6 * part
    total -= 0.05 * max(0, len(genome.nodes) - 5) ** 2
    return -0.1 - 0.8 / (1 + math.exp(-0.5 * (total - 1))), macs


def found(kit: Any, algorithm: str, seed: int, evaluations: int, lag: int | None) -> float:
    """The hypervolume after a number of evaluations."""
    proposer = kit.proposer(
        algorithm, lag, seed=seed, population=50, space=load_space("quickstart")
    )
    results: list[TrialResult] = []
    for number in range(evaluations):
        # As late as may be: results become known in generations, or with the lag.
        known = number - number % 50 if lag is None else max(0, number - lag + 1)
        last = proposer.propose(number, results[:known])[-1]
        results.append(TrialResult.of(last, [costs(last.genome, seed)]))
    rows = [one.costs for one in results if one.costs is not None]
    return hypervolume(normalise(rows, (-1.0, 0.0), (-0.1, 8.0 * WIDTH**2)), (1.0, 1.0))


@pytest.mark.slow
@pytest.mark.parametrize("lag", [None, 8])
@pytest.mark.parametrize("algorithm", ["nsga2", "regularized-evolution"])
def test_search_beats_random_at_600_evaluations(kit: Any, algorithm: str, lag: int | None) -> None:
    gains = [found(kit, algorithm, s, 600, lag) - found(kit, "random", s, 600, None) for s in SEEDS]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    print(f"{algorithm}, lag {lag}: {statistics.mean(gains):+.4f} ± {error:.4f} over random")
    assert statistics.mean(gains) > 3 * error
