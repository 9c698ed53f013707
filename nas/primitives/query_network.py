"""The sum that QANA's scores are: hidden units whose weights are the query's, read by the keys.

    scores_ij = scale query_i·key_j + sum_l out_il act(rows_il·seen_j + bias_il) + shift_i

Written plainly (``sum_network``), autograd keeps two planes of pairs for each unit, and every
operation walks all of them through memory. ``NetworkSum`` computes one unit of a piece of a plane
in cache, keeps nothing but its operands and computes units again in the backward pass: two to
three times faster on a CPU at 512 tokens and heads of 16, in memory that does not grow with the
units. Where a key is about as wide as the sequence is long, or cores multiply 16-bit matrices,
products are what costs, and the plain form does fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from nas.kernels import way
from nas.primitives.hidden_units import activate, activate_into, slope_into
from nas.primitives.pieces import is_recorded, pieces

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def reduce_network(
    query: Float[Tensor, "b h q v"],
    key: Float[Tensor, "b h k v"],
    rows: Float[Tensor, "b h q l w"],
    seen: Float[Tensor, "b h k w"],
    out: Float[Tensor, "b h q l"],
    bias: Float[Tensor, "b h q l"],
    shift: Float[Tensor, "b h q 1"],
    scale: float,
    activation: str,
) -> Float[Tensor, "b h q k"]:
    """Scores of keys by queries and by the networks that the queries hold.

    Args:
        scale: the factor of query·key; 0 leaves the product out.
        activation: gelu, relu, silu or tanh.
    """
    operands = (query, key, rows, seen, out, bias, shift)
    keys, width = seen.shape[2:]
    sums = rows.shape[:4].numel() * keys
    # Wide keys cost more multiplications than memory, above all in 16 bits; few pairs, more calls.
    is_short = keys < 4 * width if rows.dtype.itemsize > 2 else keys < 256 or width > 32
    is_small = is_short or sums < 2**19
    rule = "planes" if is_small or rows.device.type != "cpu" else "pieces"
    # Planes of this size are more memory than by_rows counts with.
    is_large = sums > 2**25
    if is_recorded() or (
        not is_large and way("query_network", rows, keys, width, rule) == "planes"
    ):
        return sum_network(*operands, scale, activation)
    if not scale:  # products over nothing
        operands = (query[..., :0], key[..., :0], *operands[2:])
    return NetworkSum.apply(*operands, scale, activation)


def sum_network(
    query: Float[Tensor, "b h q v"],
    key: Float[Tensor, "b h k v"],
    rows: Float[Tensor, "b h q l w"],
    seen: Float[Tensor, "b h k w"],
    out: Float[Tensor, "b h q l"],
    bias: Float[Tensor, "b h q l"],
    shift: Float[Tensor, "b h q 1"],
    scale: float,
    activation: str,
) -> Float[Tensor, "b h q k"]:
    """``reduce_network`` in plain operations: the reference, h n² (v + l w + l) multiply-adds."""
    # One product for all hidden units: (b, h, q * l, w) against the keys.
    inner = (rows.flatten(2, 3) @ seen.transpose(-2, -1)).unflatten(2, (-1, rows.shape[3]))
    active = activate(inner + bias.unsqueeze(-1), activation)
    scores = (weighted(out, active) if is_recorded() else Weighted.apply(out, active)) + shift
    return scores + query @ key.transpose(-2, -1) * scale if scale else scores


def weighted(
    out: Float[Tensor, "b h q l"], active: Float[Tensor, "b h q l k"]
) -> Float[Tensor, "b h q k"]:
    """A query's units, each with its weight."""
    return (out.unsqueeze(-2) @ active).squeeze(-2)


class Weighted(torch.autograd.Function):
    """``weighted``, whose gradient by the units is no product of matrices one wide.

    Such products take three to eight times as long as the multiplication that they are.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        out: Float[Tensor, "b h q l"], active: Float[Tensor, "b h q l k"]
    ) -> Float[Tensor, "b h q k"]:
        return weighted(out, active)

    @staticmethod
    def setup_context(ctx: "Any", inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: "Any", gradient: Float[Tensor, "b h q k"]) -> tuple[Tensor, Tensor]:
        out, active = ctx.saved_tensors
        above = gradient.unsqueeze(-2)
        to_out = (above.to(active.dtype) @ active.transpose(-2, -1)).squeeze(-2)
        # A product is laid out as its factors are: like the units, if these are contiguous.
        to_active = out.contiguous().unsqueeze(-1) * above.contiguous()
        return to_out.to(out.dtype), to_active.to(active.dtype)


class NetworkSum(torch.autograd.Function):
    """``sum_network`` without planes in memory; arguments as there.

    Sums are in float32, in float64 for float64; the result has the type of rows and shift.
    Second derivatives and ``torch.func``'s transforms take the plain form.
    """

    @staticmethod
    def forward(
        query: Float[Tensor, "b h q v"],
        key: Float[Tensor, "b h k v"],
        rows: Float[Tensor, "b h q l w"],
        seen: Float[Tensor, "b h k w"],
        out: Float[Tensor, "b h q l"],
        bias: Float[Tensor, "b h q l"],
        shift: Float[Tensor, "b h q 1"],
        scale: float,
        activation: str,
    ) -> Float[Tensor, "b h q k"]:
        starts, ends, units, columns, factors = network_by_unit(query, key, rows, seen, out, bias)
        wide = units.dtype
        kind = torch.promote_types(rows.dtype, shift.dtype)
        shifts = shift.flatten(0, 1).to(wide)
        scores = units.new_empty(units.shape[1], units.shape[2], seen.shape[2], dtype=kind)
        with torch.autocast(units.device.type, enabled=False):
            for at in pieces(scores):
                # In place where the result is as wide as its sums.
                total = scores[at] if kind == wide else scores[at].to(wide)
                torch.baddbmm(shifts[at], starts[at], ends[at[0]].mT, alpha=scale, out=total)
                inner, seen_here = torch.empty_like(total), columns[at[0]].mT
                parts = (units[:, *at].unbind(), factors[:, *at].unbind())
                for unit, factor in zip(*parts, strict=True):
                    torch.bmm(unit, seen_here, out=inner)
                    activate_into(inner, inner, activation)
                    torch.addcmul(total, inner, factor, out=total)
                if kind != wide:
                    scores[at] = total
        return scores.unflatten(0, rows.shape[:2])

    @staticmethod
    def setup_context(ctx: "Any", inputs: tuple["Any", ...], output: Tensor) -> None:
        *operands, ctx.scale, ctx.activation = inputs
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: "Any", gradient: Float[Tensor, "b h q k"]) -> tuple[Tensor | None, ...]:
        operands, scale, name = ctx.saved_tensors, ctx.scale, ctx.activation
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted
            pull = torch.func.vjp(plain_network(scale, name), *operands)[1]
            return (*pull(gradient), None, None)
        with torch.autocast(gradient.device.type, enabled=False):
            gradients = network_gradients(operands, gradient.flatten(0, 1), scale, name)
        batch = gradient.shape[:2]
        shaped = (found.unflatten(0, batch) for found in gradients)
        return (*(g.to(o.dtype) for g, o in zip(shaped, operands, strict=True)), None, None)

    @staticmethod
    def vmap(info: "Any", in_dims: tuple[int | None, ...], *inputs: "Any") -> tuple[Tensor, int]:
        """Under ``torch.vmap``: the plain form, whose operations have rules for batches."""
        *operands, scale, activation = inputs
        return torch.vmap(plain_network(scale, activation), in_dims[:-2])(*operands), 0


def plain_network(scale: float, activation: str) -> "Callable[..., Tensor]":
    """``sum_network`` of its tensors alone."""
    return lambda a, b, c, d, e, f, g: sum_network(a, b, c, d, e, f, g, scale, activation)


def network_by_unit(
    query: Tensor, key: Tensor, rows: Tensor, seen: Tensor, out: Tensor, bias: Tensor
) -> tuple[Tensor, ...]:
    """Operands as (b h, n, v) twice, (l, b h, q, w + 1), (b h, k, w + 1) and (l, b h, q, 1).

    In float32 or float64. A unit's bias is its last weight, of a key's last number, which is 1.
    """
    wide = torch.promote_types(rows.dtype, torch.float32)
    starts, ends, keys = (t.flatten(0, 1).to(wide).contiguous() for t in (query, key, seen))
    planes, (queries, count, width) = starts.shape[0], rows.shape[2:]
    units = keys.new_empty(count, planes, queries, width + 1)
    units.unflatten(1, rows.shape[:2])[..., :-1] = rows.movedim(3, 0)
    units.unflatten(1, rows.shape[:2])[..., -1] = bias.movedim(3, 0)
    columns = torch.cat((keys, torch.ones_like(keys[..., :1])), -1)
    factors = out.to(wide).movedim(3, 0).flatten(1, 2).contiguous().unsqueeze(-1)
    return starts, ends, units, columns, factors


def network_gradients(
    operands: tuple[Tensor, ...], gradient: Float[Tensor, "p q k"], scale: float, activation: str
) -> tuple[Tensor, ...]:
    """Gradients of the seven operands of ``sum_network``, batch and heads in one dimension."""
    starts, ends, units, columns, factors = network_by_unit(*operands[:-1])
    keys = columns[..., :-1].contiguous()
    scaled = units[..., :-1] * factors
    to_starts, to_ends, to_keys = (torch.zeros_like(t) for t in (starts, ends, keys))
    to_rows, to_out, to_bias = (torch.empty_like(t) for t in (scaled, factors, factors))
    to_shift = units.new_empty(*starts.shape[:2], 1)
    for at in pieces(gradient):
        above = gradient[at].to(units.dtype).contiguous()
        own, seen = columns[at[0]].mT, keys[at[0]]
        torch.sum(above, -1, keepdim=True, out=to_shift[at])
        to_starts[at].baddbmm_(above, ends[at[0]], alpha=scale)
        to_ends[at[0]].baddbmm_(above.mT, starts[at], alpha=scale)
        inner, active = torch.empty_like(above), torch.empty_like(above)
        parts = (t[:, *at].unbind() for t in (units, scaled, to_rows, to_out, to_bias))
        for unit, rows, slope, by_out, by_bias in zip(*parts, strict=True):
            torch.bmm(unit, own, out=inner)
            activate_into(active, inner, activation)
            slope_into(inner, above, active, activation)
            torch.sum(active.mul_(above), -1, keepdim=True, out=by_out)
            torch.sum(inner, -1, keepdim=True, out=by_bias)
            torch.bmm(inner, seen, out=slope)
            to_keys[at[0]].baddbmm_(inner.mT, rows)
    return (
        to_starts,
        to_ends,
        to_rows.mul_(factors).movedim(0, 2),
        to_keys,
        to_out.squeeze(-1).movedim(0, -1),
        to_bias.mul_(factors).squeeze(-1).movedim(0, -1),
        to_shift,
    )
