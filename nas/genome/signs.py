"""Signs of results that hold for every input, and whether a genome's output is constant."""

from __future__ import annotations

from functools import lru_cache

from nas.genome import Genome, Node, Ref
from nas.genome.primitives import get
from nas.genome.primitives.signs import Sign


@lru_cache(maxsize=16)
def _signs(nodes: tuple[Node, ...]) -> tuple[Sign, ...]:
    signs: list[Sign] = []
    for node in nodes:
        operands = [signs[ref] if isinstance(ref, int) else Sign.UNKNOWN for ref in node.inputs]
        is_own = node.op == "exclude_value" and len({*node.inputs}) == 1  # minus all of itself
        signs.append(Sign.ZERO if is_own else get(node.op).sign(operands))
    return tuple(signs)


def is_non_negative(genome: Genome, ref: Ref) -> bool:
    """Return whether the result of a node is provably never negative."""
    return isinstance(ref, int) and Sign.NON_NEGATIVE in _signs(genome.nodes)[ref]


def is_constant(genome: Genome) -> bool:
    """Return whether the output of a genome is provably the same for every input.

    An example is an aggregation by squared rectifiers of negative distances. The genome must
    type-check.
    """
    constant: list[bool] = []
    for node, sign in zip(genome.nodes, _signs(genome.nodes), strict=True):
        reads_constants = all(isinstance(ref, int) and constant[ref] for ref in node.inputs)
        reads_tokens = "x" in get(node.op).extras or not node.inputs
        constant.append(sign is Sign.ZERO or (reads_constants and not reads_tokens))
    return constant[-1]
