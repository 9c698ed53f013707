"""Which mechanisms keep the function of the attention that they replace: found by computing.

At their start they must equal softmax(q·kᵀ / sqrt(w))·v on random streams in float64, with and
without a mask, more keys than queries among them. No list of names is kept.
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
_PROBE: Final = HostSizes(dim=12, heads=4, kv_heads=2, width=6, has_bias=True)
_SEED: Final = 0


def starting_at(genome: Genome, init: str) -> Genome:
    """The genome with that ``init`` at every primitive that has one.

    ``gate`` starts from a gate that is closed: a learned one, or the warm-up that the genome has.

    Raises:
        GenomeError: a primitive or parameter does not exist, or has no such initialisation.
    """
    genome = check_vocabulary(genome)
    nodes = tuple(_started(node, init) for node in genome.nodes)
    return check_vocabulary(replace(genome, nodes=nodes), f"init={init!r}")


def check_preserving(genome: Genome, init: str) -> None:
    """Refuse a mechanism that would change what a model computes; ``genome`` starts at ``init``.

    Raises:
        GenomeError: it is not equal to softmax attention at its start, or wants other projections.
        ViolationError: it does not type-check.
    """
    _check_projections(genome)
    found = difference(genome)
    if found > TOLERANCE:
        how = f"differs from softmax attention by {found:.2g}"
        if math.isinf(found):
            how = "cannot take the place of softmax attention, keys and queries being two lengths"
        raise GenomeError(
            f"{formula(genome)} {how} at its start, so it would change what the model computes; "
            f"expected one that starts equal to it, such as {', '.join(preserving(init))}; "
            "preserve=False takes it as it is."
        )


def difference(genome: Genome) -> float:
    """The largest difference from softmax attention at the start; infinite where it cannot run.

    Raises:
        GenomeError, ViolationError: as ``AttentionCore``.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(_SEED)
        core = AttentionCore(genome, _PROBE).double().eval()
        cases = [(keys, is_seen) for keys in (5, 7, _many(genome)) for is_seen in (True, False)]
        try:
            return max(_apart(core, *case) for case in cases)
        except (RuntimeError, TypeError, ValueError):  # a graph that needs as many keys as queries
            return math.inf


def _apart(core: AttentionCore, keys: int, is_seen: bool) -> float:
    """The difference for 5 queries and so many keys, all of them seen or some."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(2, *shape, dtype=torch.float64)

    q, x = draw(_PROBE.heads, 5, _PROBE.width), draw(5, _PROBE.dim)
    k, v = (draw(_PROBE.kv_heads, keys, _PROBE.width) for _ in range(2))
    mask = None
    if not is_seen:
        mask = torch.rand(2, 1, 5, keys) < 0.7
        mask[..., 0] = True
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return float((core(q, k, v, x, mask)[0] - expected).abs().max())


@lru_cache(maxsize=8)
def preserving(init: str) -> tuple[str, ...]:
    """The named mechanisms that keep the function, in the order of their table."""
    return tuple(name for name, one in MECHANISMS.items() if _keeps(one.genome, init))


def _keeps(genome: Genome, init: str) -> bool:
    try:
        _check_projections(genome)
        return difference(starting_at(genome, init)) <= TOLERANCE
    except NasError:
        return False


def _check_projections(genome: Genome) -> None:
    """Refuse a genome whose heads are not each its own q, k and v, concatenated, seeing all."""
    plan = make_plan(genome)
    found, default = plan.genome.projections, Projections()
    other = [
        f"{f.name}: {getattr(found, f.name)}"
        for f in fields(Projections)
        if getattr(found, f.name) != getattr(default, f.name)
    ]
    if plan.is_windowed:
        other.append(f"window: {plan.genome.visibility.window}")
    if other:
        raise GenomeError(
            f"the mechanism has {', '.join(other)}; expected the projections and the sight of "
            "multi-head attention (all of q, k and v read and projected, all heads, concatenated, "
            "no window), since the model keeps its own; preserve=False converts it."
        )


def _started(node: Node, init: str) -> Node:
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


def _many(genome: Genome) -> int:
    """More keys than any parameter counts: what keeps the k largest scores drops some of them."""
    counts = [v for node in genome.nodes for v in node.param_dict().values() if type(v) is int]
    defaults = [d.default for n in genome.nodes for d in get(n.op).parameters.values()]
    return 8 + max([*counts, *(v for v in defaults if type(v) is int)], default=0)
