"""The test whether a mechanism keeps the function of the attention that it replaces.

The test compares the mechanism at its start with softmax(q·kᵀ / sqrt(w))·v on random streams in
float64, with and without a mask, also with more keys than queries.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.common.errors import GenomeError, NasError
from nas.compiler import formula, make_plan
from nas.genome import Genome, Node, ParamValue, Projections
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives import check_vocabulary, get
from nas.surgery.core import AttentionCore, HostSizes

TOLERANCE: Final = 1e-9
_SIZES: Final = HostSizes(dim=12, heads=4, kv_heads=2, width=6, has_bias=True)
_SEED: Final = 0


def starting_at(genome: Genome, init: str) -> Genome:
    """The genome with this ``init`` at every primitive that has the parameter.

    ``gate`` starts from a closed gate: a learned one, or the warm-up that the genome has.

    Raises:
        GenomeError: a primitive or parameter does not exist, or has no such initialisation.
    """
    genome = check_vocabulary(genome)
    nodes = tuple(_with_init(node, init) for node in genome.nodes)
    return check_vocabulary(replace(genome, nodes=nodes), f"init={init!r}")


def check_preserving(genome: Genome, init: str) -> None:
    """Check that a mechanism that starts at ``init`` keeps the outputs of a model.

    Raises:
        GenomeError: it differs from softmax attention at its start, or names other projections.
        ViolationError: it does not type-check.
    """
    _check_projections(genome)
    largest = difference(genome)
    if largest > TOLERANCE:
        reason = f"differs from softmax attention by {largest:.2g}"
        if math.isinf(largest):
            reason = "cannot replace softmax attention, where keys and queries differ in length"
        raise GenomeError(
            f"{formula(genome)} {reason} at its start, so it would change the model's outputs; "
            f"expected one that starts equal to it, such as {', '.join(preserving(init))}; "
            "preserve=False takes it as it is."
        )


def difference(genome: Genome) -> float:
    """The largest difference from softmax attention at the start; infinite if it cannot run.

    Raises:
        GenomeError, ViolationError: as ``AttentionCore``.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(_SEED)
        core = AttentionCore(genome, _SIZES).double().eval()
        cases = [(n, masked) for n in (5, 7, _more_keys(genome)) for masked in (False, True)]
        try:
            return max(_difference(core, *case) for case in cases)
        except (RuntimeError, TypeError, ValueError):  # it needs as many keys as queries
            return math.inf


def _difference(core: AttentionCore, keys: int, is_masked: bool) -> float:
    """The difference for 5 queries and ``keys`` keys."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, *shape, dtype=torch.float64)

    q, x = draw(_SIZES.heads, 5, _SIZES.width), draw(5, _SIZES.dim)
    k, v = (draw(_SIZES.kv_heads, keys, _SIZES.width) for _ in range(2))
    mask = None
    if is_masked:
        mask = torch.rand(2, 1, 5, keys) < 0.7
        mask[..., 0] = True
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return float((core(q, k, v, x, mask)[0] - expected).abs().max())


@lru_cache(maxsize=8)
def preserving(init: str) -> tuple[str, ...]:
    """The named mechanisms that keep the function, in the order of their table."""

    def keeps(genome: Genome) -> bool:
        try:
            _check_projections(genome)
            return difference(starting_at(genome, init)) <= TOLERANCE
        except NasError:
            return False

    return tuple(name for name, mechanism in MECHANISMS.items() if keeps(mechanism.genome))


def _check_projections(genome: Genome) -> None:
    """Raise GenomeError unless projections and visibility are those of multi-head attention."""
    genome = make_plan(genome).genome
    default = Projections()
    other = [
        f"{f.name}: {getattr(genome.projections, f.name)}"
        for f in fields(Projections)
        if getattr(genome.projections, f.name) != getattr(default, f.name)
    ]
    if genome.visibility.window is not None:
        other.append(f"window: {genome.visibility.window}")
    if other:
        raise GenomeError(
            f"the mechanism has {', '.join(other)}; expected the projections of multi-head "
            "attention (q, k and v projected and read, all heads, concatenated) and no window, "
            "since the model keeps its own; preserve=False converts it."
        )


def _with_init(node: Node, init: str) -> Node:
    primitive = get(node.op)
    if "init" not in primitive.parameters:
        return node
    changed: dict[str, ParamValue] = {"init": init}
    gate = primitive.full(node.param_dict()).get("gate")
    if init == "gate" and gate == "none":
        changed["gate"] = "learned"
    if init == "gate" and gate == "warmup":
        changed["init"] = "random"  # the warm-up is the closed gate
    return replace(node, params=tuple(sorted((node.param_dict() | changed).items())))


def _more_keys(genome: Genome) -> int:
    """More keys than any integer parameter: top-k filters then drop some."""
    values = [v for node in genome.nodes for v in get(node.op).full(node.param_dict()).values()]
    return 8 + max((v for v in values if type(v) is int), default=0)
