"""Softmax attention with changed scores by FlexAttention, which torch compiles to one GPU kernel.

A change is a function ``change(score, b, h, i, j)`` of the score of query i and key j, in head h of
sequence b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import (
    AuxOutput,
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
)

from nas.compiler.kernels import computed_dtype
from nas.compiler.masks import in_window
from nas.genome.primitives.tensors import Change, Gates, Key, Mask, Query, Sums, Values

LEAST_QUERIES: Final = 256  # for fewer, a compilation of seconds does not pay
LEAST_WIDTH: Final = 16  # of a head, in FlexAttention
MOST_WIDTH: Final = 128  # of a head, so that tiles fit a GPU's shared memory; not measured
MOST_KERNELS: Final = 256  # compiled in a process, one for each chain of changes and each shape


def multiplied(factor: Float[Tensor, "h"]) -> Change:
    """Return the change by the primitive ``temperature``."""
    return lambda score, b, h, i, j: score * factor[h]


def capped(cap: float) -> Change:
    """Return the change by ``softcap``."""
    return lambda score, b, h, i, j: cap * torch.tanh(score / cap)


def biased(bias: Float[Tensor, "b h k 1"]) -> Change:
    """Return the change by ``key_bias``."""
    return lambda score, b, h, i, j: score + bias[b, h, j, 0]


def distant(heads: int) -> Change:
    """Return the change by ``alibi``."""
    return lambda score, b, h, i, j: score - torch.exp2((h + 1) * (-8.0 / heads)) * (i - j).abs()


def decayed(gates: Gates, is_causal: bool) -> Change:
    """Return the change by ``decay``, in causal attention up to a number that all keys share."""
    gates, other = gates.clone(), gates.clone()  # FlexAttention accepts a tensor at one index only
    if is_causal:
        return lambda score, b, h, i, j: score - gates[b, h, j, 0]

    def change(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        difference = gates[b, h, i, 0] - other[b, h, j, 0]
        return score + torch.where(difference > 0, -difference, difference)  # as in ``log_decay``

    return change


def log_sigmoid() -> Change:
    """Return the change of scores to logarithms of their sigmoids."""
    return lambda score, b, h, i, j: F.logsigmoid(score)


# The function of each primitive's change, and its arguments.
CHANGES: Final = {
    "temperature": (multiplied, "{module}.factor"),
    "softcap": (capped, "{module}.cap"),
    "key_bias": (biased, "{module}.bias({operand})"),
    "alibi": (distant, "{module}.heads"),
    "decay": (decayed, "{operand}, {causal}"),
}


def is_flexible(query: Query, values: Values) -> bool:
    """Whether FlexAttention computes changed scores faster than torch's other operations."""
    if torch.compiler.is_compiling() or not query.is_cuda or query.dtype == torch.float64:
        return False
    return query.shape[2] >= LEAST_QUERIES and max(query.shape[3], values.shape[3]) <= MOST_WIDTH


def flexible_attention(
    query: Query,
    key: Key,
    values: Values,
    mask: Mask,
    scale: float,
    is_causal: bool,
    changes: Sequence[Change] = (),
    *,
    sink: Float[Tensor, "h"] | None = None,
    window: tuple[int, int] | None = None,
    is_divided: bool = True,
) -> Sums:
    """Return softmax(changed scores)·values over the visible keys.

    ``is_causal`` and ``window``, a width and a number of global tokens, hide keys in addition to
    ``mask``. ``sink`` is the score of an additional key whose value is zero. If not ``is_divided``,
    the weights are the exponentials of the scores, not divided by their sum.
    """
    query, key, values = (x.to(computed_dtype(query)) for x in (query, key, values))
    batch, _, queries, width = query.shape
    keys = key.shape[2]
    if mask is not None:
        visible = mask.expand(batch, 1, queries, keys)
        changes = [*changes, lambda s, b, h, i, j: torch.where(visible[b, 0, i, j], s, -torch.inf)]

    def changed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for change in changes:
            score = change(score, b, h, i, j)
        return score

    blocks = None
    if is_causal or window is not None:
        blocks = visible_blocks(queries, keys, is_causal, window, query.device)
    if width < LEAST_WIDTH:
        query, key = (F.pad(x, (0, LEAST_WIDTH - width)) for x in (query, key))
    value_width = values.shape[-1]
    values = F.pad(values, (0, max(0, LEAST_WIDTH - value_width)))
    function: Callable[..., tuple[Tensor, AuxOutput]]
    function = compiled() if query.is_cuda else flex_attention  # type: ignore[assignment]
    out, extra = function(
        query, key, values, changed, blocks, scale=scale, return_aux=AuxRequest(lse=True)
    )
    sums: Tensor = extra.lse  # type: ignore[assignment]
    if sink is not None:
        out = out * torch.sigmoid(sums - sink.view(-1, 1))[..., None].to(out.dtype)
    if not is_divided:
        out = out * sums.exp()[..., None].to(out.dtype)
    return out[..., :value_width]


@cache
def visible_blocks(
    queries: int, keys: int, is_causal: bool, window: tuple[int, int] | None, device: torch.device
) -> BlockMask:
    """Return FlexAttention's mask of causal attention or of a window, for any batch and head."""

    def is_visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j if window is None else in_window(i, j, *window, is_causal)

    with torch.inference_mode(False):  # trainings use the same mask
        return create_block_mask(is_visible, None, None, queries, keys, device=device)


@cache
def compiled() -> Callable[..., tuple[Tensor, AuxOutput]]:
    """Return the compiled FlexAttention, which compiles again for other changes or shapes."""
    torch._dynamo.config.recompile_limit = MOST_KERNELS
    return torch.compile(flex_attention, dynamic=False)
