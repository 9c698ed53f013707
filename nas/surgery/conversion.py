"""Conversion: change the projections of an existing model's attention to the heads of a genome.

    W of a group of heads = mean over the group       queries, keys, values
    W_O of a group        = sum over the group

The mean is the rule by which Ainslie et al. (2023, section 2.1) pool keys and values. If the heads
of a group are equal, outputs do not change. Without a projection of queries, keys or values, each
head reads its slice of the token. Narrower queries and keys keep the first features of each head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn

from nas.common.errors import GenomeError
from nas.compiler.plan import Plan
from nas.genome import STREAMS
from nas.genome.primitives import Kind
from nas.genome.types import MODEL, Type
from nas.surgery.core import AttentionCore, HostSizes

OUT: Final = "o"
_WORDS: Final = {"q": "queries", "k": "keys", "v": "values"}

Linear: TypeAlias = tuple[Tensor, Tensor | None]  # weight (out, in) and bias
Shapes: TypeAlias = dict[str, tuple[int, int] | None]  # heads and features of a head


def converted(core: AttentionCore, old: Mapping[str, Linear]) -> dict[str, nn.Module]:
    """Return new projections ``q``, ``k`` and ``v``, and ``o`` if it changes; none if none changes.

    GenomeError is raised if the model's heads cannot be pooled to the genome's numbers or widths.
    """
    sizes = core.sizes
    counts = {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads, OUT: sizes.heads}
    before: Shapes = {name: (count, sizes.width) for name, count in counts.items()}
    if (shapes := _new_shapes(core, counts)) == before:
        return {}
    parts: dict[str, nn.Module] = {}
    for stream in STREAMS:
        parts[stream] = nn.Identity()
        if (shape := shapes[stream]) is not None:
            count, width = shape
            rows = (t for t in old[stream] if t is not None)
            pooled = (_groups(t, count, sizes).mean(1)[:, :width] for t in rows)
            parts[stream] = _linear(*(t.flatten(0, 1) for t in pooled))
    if (shape := shapes[OUT]) != before[OUT]:
        weight, bias = old[OUT]
        parts[OUT] = nn.Identity()
        if shape is not None:
            parts[OUT] = _linear(_groups(weight.T, shape[0], sizes).sum(1).flatten(0, 1).T, bias)
    return parts


def _new_shapes(core: AttentionCore, counts: Mapping[str, int]) -> Shapes:
    """Return the shape of each projection after a conversion; None for no projection."""
    plan, sizes = core.plan, core.sizes
    projections = plan.genome.projections
    _check_widths(plan, sizes)
    shapes: Shapes = {}
    read = {stream.name for stream in plan.streams}
    for stream in STREAMS:
        # A stream that is not read stays: a cache of fixed size needs as many keys as values.
        if stream in read and not projections.has_projection(stream):
            shapes[stream] = None
            continue
        label = projections.q_heads if stream == "q" else projections.kv_heads
        named = Type(Kind.TOKENS, label).head_count(sizes.heads)
        after = min(named, counts[stream])
        if counts[stream] % after or named % after:
            raise GenomeError(
                f"{counts[stream]} heads of {_WORDS[stream]} cannot become {label} of "
                f"{sizes.heads}; expected groups of equal size, whose mean each new head is."
            )
        shapes[stream] = after, core.widths[stream]
    output = plan.output.head_count(sizes.heads), sizes.width
    shapes[OUT] = output if projections.has_wo else None
    if None in shapes.values() and sizes.heads * sizes.width != sizes.dim:
        raise GenomeError(
            f"its {sizes.heads} heads of width {sizes.width} are not the tokens' {sizes.dim} "
            "features; expected a mechanism with all projections."
        )
    return shapes


def _groups(rows: Tensor, count: int, sizes: HostSizes) -> Tensor:
    """Return rows of heads (heads times width, ...) as (count, heads per group, width, ...)."""
    return rows.reshape(count, -1, sizes.width, *rows.shape[1:])


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear


def _check_widths(plan: Plan, sizes: HostSizes) -> None:
    projections = plan.genome.projections
    if projections.qk_dim != "all" and not sizes.may_narrow:
        raise GenomeError(
            f"the mechanism has qk_dim: {projections.qk_dim}; expected all, the width of the "
            "model's heads, which its norms, rotation and cache have."
        )
    widths = {stream.type.width for stream in plan.streams} | {plan.output.width}
    if MODEL in widths or plan.output.width != "all" or projections.merge != "concat":
        raise GenomeError(
            "the mechanism's heads read or write whole tokens (raw: shared, merge: sum); expected "
            "heads of the model's width, concatenated."
        )
