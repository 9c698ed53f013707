"""What every count promises, for a thousand random mechanisms at three sizes.

fvcore's multiply-adds on the reference form, the closed formulas of its primitives and torch's own
count agree to the last one. Torch counts two operations for a multiply-add, and knows products of
matrices and convolutions; of what we count it does not see ``addcmul`` alone, by which additive
scores sum their hidden units pair by pair. That is told here by name, and counted by what the
mechanisms say of themselves.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import torch
from jaxtyping import config
from torch.utils.flop_counter import FlopCounterMode

from nas.canonical import digest
from nas.compiler import RULES, build_attention, make_plan
from nas.compiler.interpreter import ReferenceAttention
from nas.costs import attention_cost, closed_form_macs
from nas.counting import ELEMENTWISE, count_operations
from nas.kernels import using
from nas.measurement.tuning import PATTERNS
from nas.mechanisms import MECHANISMS
from nas.space import load_space
from nas.validation import load_policy
from nas.variation import Variation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.compiler import Plan
    from nas.genome import Genome

SPACES: Final = ("attention_v1", "attention_v2")
EACH: Final = 500
BLOCKS: Final = 10  # shares of the work, for several processes
# dim, heads, tokens; a quarter of the heads, and a quarter of a head's width, must be whole.
SIZES: Final = ((64, 8, 9), (32, 4, 21), (96, 12, 14))
# Scores that sum their hidden units by addcmul, and how many units each pair of tokens has.
UNITS: Final = {
    "additive_attention_score": lambda width, params: width,
    "neural_attention": lambda width, params: params["width"],
}


@pytest.fixture(autouse=True)
def _unchecked_shapes() -> Iterator[None]:
    """Other tests check them; a trace would record the checks, and take twice the time."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", before)


@cache
def genomes() -> tuple[Genome, ...]:
    """Distinct samples of both spaces, each mutated twice, none with a window."""
    found: dict[str, Genome] = {}
    for number, name in enumerate(SPACES, start=1):
        found |= islice(_unseen(name, found), number * EACH - len(found))
    assert len(found) == EACH * len(SPACES)
    return tuple(found.values())


def _unseen(name: str, known: dict[str, Genome]) -> Iterator[tuple[str, Genome]]:
    space = load_space(name)
    variation = Variation(space, load_policy(space.policy))
    rng = np.random.default_rng(3)
    seen = set(known)
    while True:
        genome = variation.mutate(variation.sample(rng), rng, 2)[0]
        key = digest(genome)
        if key not in seen and genome.visibility.window is None:
            seen.add(key)
            yield key, genome


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_thousand_genomes_count_alike_three_ways(block: int, sizes: tuple[int, ...]) -> None:
    for genome in genomes()[block::BLOCKS]:
        plan = make_plan(genome)
        counts, _ = count_operations(plan, *sizes)
        macs = sum(count for name, count in counts.items() if name != ELEMENTWISE)
        assert macs == closed_form_macs(plan, *sizes), genome
        flops = _torchs_count(plan, *sizes)
        assert flops == 2 * (macs - counts["addcmul"]), genome
        assert counts["addcmul"] == _multiply_adds_of_units(plan, *sizes), genome
        assert counts[ELEMENTWISE] > 0


def _torchs_count(plan: Plan, dim: int, heads: int, tokens: int) -> int:
    block = ReferenceAttention(plan, dim, heads).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        block(torch.zeros(1, tokens, dim))
    return int(counter.get_total_flops())


def _multiply_adds_of_units(plan: Plan, dim: int, heads: int, tokens: int) -> int:
    total = 0
    for step in plan.steps:
        if step.primitive.name in UNITS:
            sizes = plan.call_sizes(step, dim, heads, tokens)
            units = UNITS[step.primitive.name](sizes.width, step.params)
            total += sizes.heads * tokens**2 * units
    return total


class Everywhere(dict[str, dict[int, str]]):
    """One way for whatever is computed anywhere."""

    def __init__(self, way: str) -> None:
        super().__init__({"any": {1: way}})

    def get(self, place: str, default: Any = None) -> dict[int, str]:
        return self["any"]


EXAMPLES: Final = tuple(found.genome for found in MECHANISMS.values())


def test_the_way_of_computing_changes_no_count() -> None:
    """Not the lowering, by all rules, by none or by one; nor what was measured as fastest here."""
    dim, heads, tokens = SIZES[0]
    for genome in (*EXAMPLES, *genomes()[::100]):
        cost = attention_cost(genome, dim=dim, heads=heads, tokens=tokens)
        for fuse in (True, False, *RULES):
            block: Any = build_attention(genome, dim, heads, fuse=fuse)
            assert sum(p.numel() for p in block.parameters()) == cost.params
            assert block.genome == make_plan(genome).genome
        again = attention_cost(block.genome, dim=dim, heads=heads, tokens=tokens)
        assert again == cost
        for way in {way for pattern in PATTERNS for way in pattern.ways}:
            with using(Everywhere(way)):
                assert attention_cost(genome, dim=dim, heads=heads, tokens=tokens) == cost


def test_shapes_without_numbers_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large blocks are not computed to be counted."""
    plans = [make_plan(g) for g in (*EXAMPLES, *genomes()[::25]) if not g.visibility.window]
    computed = [count_operations(plan, *SIZES[0]) for plan in plans]
    monkeypatch.setattr("nas.counting._COMPUTED_NUMBERS", 0)
    assert [count_operations(plan, *SIZES[0]) for plan in plans] == computed
