"""Signs of results that hold for every input, and whether a genome's output is constant."""

from __future__ import annotations

from functools import lru_cache

from nas.genome import Genome, Node, Ref
from nas.genome.primitives import get
from nas.genome.primitives.factors import Sign, Weights


@lru_cache(maxsize=16)
def _signs(nodes: tuple[Node, ...]) -> tuple[Sign, ...]:
    signs: list[Sign] = []
    for node in nodes:
        operands = [signs[ref] if isinstance(ref, int) else Sign() for ref in node.inputs]
        signs.append(get(node.op).sign(operands, len(node.inputs) > len({*node.inputs})))
    return tuple(signs)


def sign_of(genome: Genome, ref: Ref) -> Sign:
    """Return the provable sign of a node's result; unknown for a stream."""
    return _signs(genome.nodes)[ref] if isinstance(ref, int) else Sign()


def is_constant(genome: Genome) -> bool:
    """Return whether the output of a genome is provably the same for every input.

    The genome must type-check.
    """
    constant: list[bool] = []
    for node, sign in zip(genome.nodes, _signs(genome.nodes), strict=True):
        primitive = get(node.op)
        reads_constants = all(isinstance(ref, int) and constant[ref] for ref in node.inputs)
        reads_tokens = "x" in primitive.extras or not node.inputs
        is_mean = primitive.weights(primitive.full(node.param_dict())) is Weights.MEAN
        constant.append(sign.is_zero or is_mean or (reads_constants and not reads_tokens))
    return constant[-1]
