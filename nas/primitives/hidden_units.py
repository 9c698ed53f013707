"""The reduction that additive scores share: hidden units of a query and a key, summed.

    scores_ij = sum_m weight_m act(left_im + right_jm)

Written plainly (``sum_units``), autograd keeps two planes of pairs for each unit, and every
operation walks a plane through memory. ``UnitSum`` computes a piece of a plane in cache, keeps
nothing but its operands and computes units again in the backward pass: two to four times faster
on a CPU (65 or 512 tokens, 16 units), in memory that does not grow with the units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nas.kernels import way
from nas.primitives.pieces import is_recorded, pieces

if TYPE_CHECKING:
    from typing import Any


def reduce_units(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    weight: Float[Tensor, "..."],
    activation: str,
) -> Float[Tensor, "b h q k"]:
    """Scores of a hidden layer whose input is split between query and key.

    Args:
        weight: (m) shared by the heads, or (h, m).
        activation: gelu, relu, silu or tanh.
    """
    # One image of 65 tokens is so few pairs that calls cost more than memory.
    keys, units = right.shape[2:]
    is_small = left.shape[:3].numel() * keys < 2**15
    rule = "planes" if is_small or left.device.type != "cpu" else "pieces"
    # Planes of this size are more memory than by_rows counts with.
    is_large = left.shape[:3].numel() * keys * units > 2**26
    if is_recorded() or (not is_large and way("hidden_units", left, keys, units, rule) == "planes"):
        return sum_units(left, right, weight, activation)
    return UnitSum.apply(left, right, weight, activation)


def sum_units(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    weight: Float[Tensor, "..."],
    activation: str,
) -> Float[Tensor, "b h q k"]:
    """``reduce_units`` in plain operations: the reference, counted as h n² m multiply-adds.

    One unit at a time: no (b, h, q, k, m) tensor.
    """
    queries = left.unsqueeze(-2).unbind(-1)
    # Keys unit by unit in memory: the innermost loop then runs over neighbours.
    keys = right.transpose(-2, -1).contiguous().unsqueeze(-2).unbind(2)
    # Every unit, the first too, is one multiply-add: counted as h·n²·m.
    scores = torch.zeros((), dtype=left.dtype, device=left.device)
    for query, key, factor in zip(queries, keys, weight.unbind(-1), strict=True):
        active = activate(query + key, activation)
        scores = torch.addcmul(scores, active, factor.reshape(-1, 1, 1))
    return scores


class UnitSum(torch.autograd.Function):
    """``sum_units`` without planes in memory; arguments as there.

    Sums are in float32, in float64 for float64; the result has the type of ``sum_units``.
    Second derivatives and ``torch.func``'s transforms take the plain form.
    """

    @staticmethod
    def forward(
        left: Float[Tensor, "b h q m"],
        right: Float[Tensor, "b h k m"],
        weight: Float[Tensor, "..."],
        activation: str,
    ) -> Float[Tensor, "b h q k"]:
        units = by_unit(left, right, weight)
        scores = units[0].new_zeros(units[0].shape[1], left.shape[2], right.shape[2])
        for planes, rows in pieces(scores):
            total = scores[planes, rows]
            inner = torch.empty_like(total)
            for query, key, factor in units_of(units, planes, rows):
                torch.add(query, key, out=inner)
                activate_into(inner, inner, activation)
                torch.addcmul(total, inner, factor, out=total)
        kind = torch.promote_types(left.dtype, weight.dtype)
        return scores.unflatten(0, left.shape[:2]).to(kind)

    @staticmethod
    def setup_context(
        ctx: "Any", inputs: tuple[Tensor, Tensor, Tensor, str], output: Tensor
    ) -> None:
        left, right, weight, ctx.activation = inputs
        ctx.save_for_backward(left, right, weight)

    @staticmethod
    def backward(ctx: "Any", gradient: Float[Tensor, "b h q k"]) -> tuple[Tensor | None, ...]:
        left, right, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted
            name = ctx.activation
            pull = torch.func.vjp(lambda a, b, c: sum_units(a, b, c, name), left, right, weight)[1]
            return (*pull(gradient), None)
        units = by_unit(left, right, weight)
        sums = sum_gradients(units, gradient.flatten(0, 1).to(units[0].dtype), ctx.activation)
        batch, factor = left.shape[:2], units[2]
        queries, keys = (sums[0] * factor).squeeze(-1), (sums[1] * factor).squeeze(-2)
        return (
            queries.unflatten(1, batch).movedim(0, -1).to(left.dtype),
            keys.unflatten(1, batch).movedim(0, -1).to(right.dtype),
            sums[2].view(-1, *batch).movedim(0, -1).sum_to_size(weight.shape).to(weight.dtype),
            None,
        )

    @staticmethod
    def vmap(
        info: "Any",
        in_dims: tuple[int | None, ...],
        left: Tensor,
        right: Tensor,
        weight: Tensor,
        activation: str,
    ) -> tuple[Tensor, int]:
        """Under ``torch.vmap``: the plain form, whose operations have rules for batches."""
        batched = torch.vmap(lambda a, b, c: sum_units(a, b, c, activation), in_dims[:3])
        return batched(left, right, weight), 0


def by_unit(left: Tensor, right: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The operands as (m, b h, q, 1), (m, b h, 1, k) and (m, b h, 1, 1), float32 or float64."""
    wide = torch.promote_types(left.dtype, torch.float32)
    batch, heads, _, count = left.shape
    queries, keys, factors = (
        tensor.to(wide).movedim(-1, 0).flatten(1, 2).contiguous()
        for tensor in (left, right, weight.expand(batch, heads, count))
    )
    return queries.unsqueeze(-1), keys.unsqueeze(-2), factors[..., None, None]


def units_of(
    units: tuple[Tensor, Tensor, Tensor], planes: slice, rows: slice
) -> list[tuple[Tensor, ...]]:
    """One piece of the operands that ``by_unit`` gives, unit by unit."""
    left, right, weight = units
    parts = left[:, planes, rows], right[:, planes], weight[:, planes]
    return list(zip(*(part.unbind() for part in parts), strict=True))


def sum_gradients(
    units: tuple[Tensor, Tensor, Tensor], gradient: Float[Tensor, "p q k"], activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in the shapes of ``units``; those of left and right still lack the weight."""
    left, right, weight = (torch.zeros_like(tensor) for tensor in units)
    gradient = gradient.contiguous()
    for planes, rows in pieces(gradient):
        above = gradient[planes, rows]
        inner, active = torch.empty_like(above), torch.empty_like(above)
        totals = units_of((left, right, weight), planes, rows)
        for (query, key, _), total in zip(units_of(units, planes, rows), totals, strict=True):
            torch.add(query, key, out=inner)
            activate_into(active, inner, activation)
            slope_into(inner, above, active, activation)
            total[0].copy_(inner.sum(-1, keepdim=True))
            total[1].add_(inner.sum(-2, keepdim=True))
            total[2].add_(active.mul_(above).sum((-2, -1), keepdim=True))
    return left, right, weight


def activate(inner: Float[Tensor, "..."], activation: str) -> Float[Tensor, "..."]:
    """The activation of that name: gelu, relu, silu or tanh."""
    if activation == "gelu":
        return F.gelu(inner)
    if activation == "relu":
        return F.relu(inner)
    return F.silu(inner) if activation == "silu" else torch.tanh(inner)


def activate_into(out: Tensor, inner: Tensor, activation: str) -> None:
    """``out`` becomes the activation of ``inner``; they may be one tensor."""
    if activation == "gelu":
        torch.ops.aten.gelu.out(inner, out=out)
    elif activation == "relu":
        torch.clamp_min(inner, 0.0, out=out)
    elif activation == "silu":
        torch.ops.aten.silu.out(inner, out=out)
    else:
        torch.tanh(inner, out=out)


def slope_into(inner: Tensor, gradient: Tensor, active: Tensor, activation: str) -> None:
    """``inner`` becomes the activation's derivative there times ``gradient``."""
    aten = torch.ops.aten
    if activation == "gelu":
        aten.gelu_backward.grad_input(gradient, inner, grad_input=inner)
    elif activation == "relu":
        aten.threshold_backward.grad_input(gradient, active, 0.0, grad_input=inner)
    elif activation == "silu":
        aten.silu_backward.grad_input(gradient, inner, grad_input=inner)
    else:
        aten.tanh_backward.grad_input(gradient, active, grad_input=inner)


def split_linear(
    tokens: Float[Tensor, "b h n i"],
    weight: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "b h n o"]:
    """A linear map with weights (o, i) shared by the heads, or (h, o, i) of each head."""
    if weight.dim() == 2:
        return F.linear(tokens, weight, bias)
    product = tokens @ weight.transpose(-2, -1)
    return product if bias is None else product + bias.unsqueeze(-2)
