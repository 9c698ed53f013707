"""Scores that a small neural network computes for each pair of query and key.

The primitives store every hidden unit of all pairs for the backward pass. The functions of this
module compute one tile (some queries with all keys) at a time, and the backward pass computes the
hidden units again. Sums are computed in float64 for float64 operands, and otherwise in float32.
Second derivatives raise an error.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nas.compiler.kernels import faster, pieces
from nas.genome.primitives.neural_scores import (
    AdditiveAttentionScore,
    NeuralAttention,
    NeuralAttentionAuthors,
    sum_layers,
    sum_units,
)
from nas.genome.primitives.qana import Qana
from nas.genome.primitives.tensors import Key, Query, Scores


def fast_sum_units(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    weight: Float[Tensor, "m"],
    shift: Float[Tensor, ""],
    activation: str,
) -> Scores:
    """Return the scores of ``sum_units``, in tiles of pairs if that is faster or limits memory."""
    # With few pairs calls dominate; units with tanh are slow to recompute.
    pairs = left[..., 0].numel() * right.shape[2]
    is_faster = pairs >= 2**15 and activation != "tanh"
    if not goes_by_pieces(left, pairs * left.shape[3], is_faster):
        return sum_units(left, right, weight, shift, activation)
    batch, heads, queries, count = left.shape
    out = weight.expand(batch, heads, queries, count)
    shifts = shift.expand(batch, heads, queries, 1)
    return sum_pairs(left, right, None, out, shifts, activation)


def goes_by_pieces(x: Tensor, numbers: int, is_faster: bool) -> bool:
    """Whether to compute scores in tiles: to limit memory, or on a CPU in 32 bits if ``is_faster``.

    ``numbers`` is the number of hidden units of all pairs, and ``x`` is one of the operands.
    """
    if torch.compiler.is_compiling() or x.device.type == "meta":
        return False
    return numbers > 2**26 or (is_faster and x.device.type == "cpu" and x.dtype.itemsize > 2)


def sum_pairs(
    bias: Float[Tensor, "b h q m"],
    keys: Float[Tensor, "b h k _"],
    rows: Float[Tensor, "b h q m w"] | None,
    out: Float[Tensor, "b h q m"],
    shift: Float[Tensor, "b h q 1"],
    activation: str,
) -> Scores:
    """Return the scores s_ij = sum_m out_im act(bias_im + rows_im·keys_j) + shift_i.

    m counts hidden units. If ``rows`` is None, keys_jm is used in place of rows_im·keys_j.
    """
    kind = torch.promote_types(bias.dtype, torch.promote_types(out.dtype, shift.dtype))
    row_units = None if rows is None else _wide(rows).movedim(3, 0).flatten(1, 2).contiguous()
    columns = by_unit(keys).mT if rows is None else _wide(keys).flatten(0, 1)
    shifts = _wide(shift).flatten(0, 1)
    operands = by_unit(bias), columns.contiguous(), row_units, by_unit(out), shifts
    scores: Tensor = UnitSums.apply(activation, *operands)
    return scores.unflatten(0, bias.shape[:2]).to(kind)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def by_unit(x: Float[Tensor, "b h n m"]) -> Float[Tensor, "m p n 1"]:
    """Return x with the units m first, and batch and heads joined to p, in at least 32 bits."""
    return _wide(x).movedim(-1, 0).flatten(1, 2).contiguous().unsqueeze(-1)


class UnitSums(torch.autograd.Function):
    """The function ``sum_pairs``, for operands with batch and heads joined to one dimension p.

    Keys have the shape (p, k, w), or the shape (m, p, 1, k) if ``rows`` is None.
    """

    @staticmethod
    def forward(
        ctx: "Any",
        activation: str,
        bias: Float[Tensor, "m p q 1"],
        keys: Float[Tensor, "..."],
        rows: Float[Tensor, "m p q w"] | None,
        out: Float[Tensor, "m p q 1"],
        shift: Float[Tensor, "p q 1"],
    ) -> Float[Tensor, "p q k"]:
        ctx.activation = activation
        ctx.save_for_backward(bias, keys, rows, out)
        activate = in_place(activation)[0]
        columns = keys.shape[-1 if rows is None else 1]
        scores = shift.expand(-1, -1, columns).contiguous()
        with torch.autocast(bias.device.type, enabled=False):
            for at in pieces(scores):
                total, inner = scores[at], torch.empty_like(scores[at])
                for unit in range(len(bias)):
                    unit_into(inner, unit, at, bias, keys, rows)
                    activate(inner, out=inner)
                    total.addcmul_(inner, out[unit, *at])
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: "Any", gradient: Float[Tensor, "p q k"]) -> tuple[Tensor | None, ...]:
        bias, keys, rows, out = ctx.saved_tensors
        activate, slope = in_place(ctx.activation)
        to_bias, to_out, to_keys = torch.empty_like(bias), torch.empty_like(out), keys * 0.0
        to_rows = None if rows is None else torch.empty_like(rows)
        with torch.autocast(bias.device.type, enabled=False):
            for at in pieces(gradient):
                above = gradient[at].contiguous()
                inner, active = torch.empty_like(above), torch.empty_like(above)
                for unit in range(len(bias)):
                    factor = out[unit, *at]
                    unit_into(inner, unit, at, bias, keys, rows)
                    activate(inner, out=active)
                    slope(above, active if ctx.activation == "tanh" else inner, grad_input=inner)
                    to_out[unit, *at] = active.mul_(above).sum(-1, keepdim=True)
                    to_bias[unit, *at] = inner.sum(-1, keepdim=True) * factor
                    if to_rows is None:
                        to_keys[unit, at[0]].baddbmm_(factor.mT, inner)
                    else:
                        to_rows[unit, *at] = (inner @ keys[at[0]]).mul_(factor)
                        to_keys[at[0]].baddbmm_(inner.mT, rows[unit, *at] * factor)
        return None, to_bias, to_keys, to_rows, to_out, gradient.sum(-1, keepdim=True)


def in_place(activation: str) -> "tuple[Any, Any]":
    """Return the operations that write an activation, and its derivative times a gradient."""
    aten = torch.ops.aten
    threshold = aten.threshold_backward.grad_input
    return {
        "gelu": (aten.gelu.out, aten.gelu_backward.grad_input),
        "relu": (aten.relu.out, lambda above, x, **out: threshold(above, x, 0.0, **out)),
        "silu": (aten.silu.out, aten.silu_backward.grad_input),
        "tanh": (aten.tanh.out, aten.tanh_backward.grad_input),
    }[activation]


def unit_into(
    inner: Float[Tensor, "p q k"],
    unit: int,
    at: tuple[slice, slice],
    bias: Float[Tensor, "m _ _ 1"],
    keys: Float[Tensor, "..."],
    rows: Float[Tensor, "m _ _ w"] | None,
) -> None:
    """Write a hidden unit of ``UnitSums``, before activation, into ``inner``, for tile ``at``."""
    if rows is None:
        torch.add(bias[unit, *at], keys[unit, at[0]], out=inner)
    else:
        torch.bmm(rows[unit, *at], keys[at[0]].mT, out=inner).add_(bias[unit, *at])


def fast_sum_layers(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    second: Float[Tensor, "g m"],
    bias: Float[Tensor, "g"],
    third: Float[Tensor, "1 g"],
    shift: Float[Tensor, "1"],
) -> Scores:
    """Return the scores of ``sum_layers``, in tiles of pairs if that is faster or limits memory."""
    numbers = left.numel() * right.shape[2]
    if not goes_by_pieces(left, numbers, numbers >= 2**19):
        return sum_layers(left, right, second, bias, third, shift)
    layers = (_wide(x) for x in (second, bias.unsqueeze(-1), third, shift))
    scores: Tensor = LayerSums.apply(by_unit(left), by_unit(right).mT, *layers)
    return scores.unflatten(0, left.shape[:2]).to(left.dtype)


class LayerSums(torch.autograd.Function):
    """The function ``sum_layers``, for operands with batch and heads joined to one dimension p.

    The operands are left (m, p, q, 1), right (m, p, 1, k), second (g, m), bias (g, 1), third (1, g)
    and shift (1).
    """

    @staticmethod
    def forward(ctx: "Any", *operands: Tensor) -> Float[Tensor, "p q k"]:
        ctx.save_for_backward(*operands)
        left, right, second, bias, third, shift = operands
        scores = left.new_empty(*left.shape[1:3], right.shape[-1])
        with torch.autocast(left.device.type, enabled=False):
            for at in pieces(scores, len(left) + 1):
                outer = hidden_layers(left[:, *at], right[:, at[0]], second, bias)[1]
                torch.addmm(shift, third, outer, out=scores[at].view(1, -1))
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: "Any", gradient: Float[Tensor, "p q k"]) -> tuple[Tensor, ...]:
        operands = ctx.saved_tensors  # read once, as activation checkpointing requires
        left, right, second, bias, third, shift = operands
        sums = tuple(torch.zeros_like(x) for x in operands)
        to_left, to_right, to_second, to_bias, to_third, _ = sums
        backward = (second * third.mT).mT.contiguous()
        cut = torch.ops.aten.threshold_backward.grad_input
        with torch.autocast(left.device.type, enabled=False):
            for at in pieces(gradient, len(left) + 1):
                hidden, outer = hidden_layers(left[:, *at], right[:, at[0]], second, bias)
                above = gradient[at].reshape(1, -1)
                to_third.addmm_(above, outer.mT)
                # The factor of the third layer's weight is applied at the end.
                cut(above.expand_as(outer), outer, 0.0, grad_input=outer)
                to_second.addmm_(outer, hidden.mT)
                to_bias += outer.sum(-1, keepdim=True)
                slope = backward @ outer
                cut(slope, hidden, 0.0, grad_input=slope)
                slope = slope.unflatten(1, gradient[at].shape)
                to_left[:, *at] = slope.sum(-1, keepdim=True)
                to_right[:, at[0]] += slope.sum(-2, keepdim=True)
        whole = gradient.sum().expand_as(shift)
        return to_left, to_right, to_second * third.mT, to_bias * third.mT, to_third, whole


def hidden_layers(
    left: Float[Tensor, "m p q 1"],
    right: Float[Tensor, "m p 1 k"],
    second: Float[Tensor, "g m"],
    bias: Float[Tensor, "g 1"],
) -> tuple[Float[Tensor, "m _"], Float[Tensor, "g _"]]:
    """Return the m units of the first and the g units of the second layer, for pairs of a tile."""
    hidden = (left + right).clamp_min_(0.0).flatten(1)
    return hidden, torch.addmm(bias, second, hidden).clamp_min_(0.0)


@faster
class FastAdditiveAttentionScore(AdditiveAttentionScore):
    """Additive scores, in tiles of pairs if hidden units would take too much memory."""

    def forward(self, query: Query, key: Key) -> Scores:
        return fast_sum_units(*self.units(query, key), "tanh")


@faster
class FastNeuralAttention(NeuralAttention):
    """Neural Attention, in tiles of pairs if that is faster or limits memory."""

    def forward(self, query: Query, key: Key) -> Scores:
        return fast_sum_units(*self.units(query, key), self.activation)


@faster
class FastNeuralAttentionAuthors(NeuralAttentionAuthors):
    """The authors' form of Neural Attention, in tiles of pairs if that is faster."""

    def forward(self, query: Query, key: Key) -> Scores:
        layers = self.second_weight, self.second_bias, self.third_weight, self.third_bias
        return fast_sum_layers(*self.halves(query, key), *layers)


@faster
class FastQana(Qana):
    """QANA, in tiles of pairs if that is faster."""

    def score(self, query: Query, key: Key, units: tuple[Tensor, ...]) -> Scores:
        rows, keys = units[0], key.shape[2]
        numbers = 2 * units[1].numel() * keys
        # With wide keys multiplications dominate, with few pairs calls.
        is_faster = keys >= 4 * rows.shape[-1] and numbers >= 2**20
        if not goes_by_pieces(key, numbers, is_faster):
            return super().score(query, key, units)
        features, rows, out, bias, shift = self.gated(key, units)
        scores = sum_pairs(bias, features, rows, out, shift, self.activation)
        return scores + (query * self.skip_scale) @ key.mT
