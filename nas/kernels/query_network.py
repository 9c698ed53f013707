"""The sum that QANA's scores are: hidden units whose weights are the query's, read by the keys.

    scores_ij = scale query_i·key_j + sum_l out_il act(rows_il·seen_j + bias_il) + shift_i

Plainly (``sum_network``) all units are planes of pairs, of one product. In pieces it is two to
three times faster on a CPU at 512 tokens and heads of 16, in memory that does not grow with the
units. Where a key is about as wide as the sequence is long, or cores multiply 16-bit matrices,
products are what costs, and the plain form does fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from nas.kernels.hidden_units import activate_into, slope_into
from nas.kernels.pair_scores import PairScores
from nas.kernels.pieces import is_recorded
from nas.primitives.hidden_units import activate

if TYPE_CHECKING:
    from typing import Any


class NetworkScores(PairScores):
    """Scores of keys by queries and by the networks that the queries hold.

    Operands: query (b, h, q, v), key (b, h, k, v), rows (b, h, q, l, w), seen (b, h, k, w), out
    and bias (b, h, q, l), shift (b, h, q, 1).

    Args:
        scale: the factor of query·key; 0 leaves the product out.
        activation: gelu, relu, silu or tanh.
    """

    def __init__(self, scale: float, activation: str) -> None:
        self.scale, self.activation = scale, activation

    def plain(self, *operands: Tensor) -> Float[Tensor, "b h q k"]:
        """See ``sum_network``."""
        query, key, rows, seen, out, bias, shift = operands
        given = (query, key, rows, seen, out, bias, shift, self.scale, self.activation)
        return sum_network(*given)

    def numbers(self, *operands: Tensor) -> int:
        """Of the units before and after their activation."""
        return 2 * operands[2].shape[:4].numel() * operands[3].shape[2]

    def rule(self, *operands: Tensor) -> str:
        """Wide keys cost more multiplications than memory, above all in 16 bits."""
        keys, width = operands[3].shape[2:]
        is_short = keys < 4 * width if operands[2].dtype.itemsize > 2 else keys < 256 or width > 32
        # And few pairs cost more calls.
        return "planes" if is_short or self.numbers(*operands) < 2**20 else "pieces"

    def dtype(self, *operands: Tensor) -> torch.dtype:
        """A gate may be wider than what it is for."""
        return torch.promote_types(operands[2].dtype, operands[6].dtype)

    def parts(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """Query and key, shift, units (l, p, q, w + 1), seen (p, k, w + 1) and out (l, p, q, 1).

        A unit's bias is its last weight, of a key's last number, which is 1.
        """
        query, key, rows, seen, out, bias, shift = operands
        wide = torch.promote_types(rows.dtype, torch.float32)
        starts, ends, keys, shifts = (
            t.flatten(0, 1).to(wide).contiguous() for t in (query, key, seen, shift)
        )
        planes, (queries, count, width) = starts.shape[0], rows.shape[2:]
        units = keys.new_empty(count, planes, queries, width + 1)
        units.unflatten(1, rows.shape[:2])[..., :-1] = rows.movedim(3, 0)
        units.unflatten(1, rows.shape[:2])[..., -1] = bias.movedim(3, 0)
        columns = torch.cat((keys, torch.ones_like(keys[..., :1])), -1)
        factors = out.to(wide).movedim(3, 0).flatten(1, 2).contiguous().unsqueeze(-1)
        return starts, ends, shifts, units, columns, factors

    def fill(
        self, parts: tuple[Tensor, ...], at: tuple[slice, slice], total: Float[Tensor, "p q k"]
    ) -> None:
        """The product, then unit by unit."""
        starts, ends, shifts, units, columns, factors = parts
        if self.scale:
            torch.bmm(starts[at] * self.scale, ends[at[0]].mT, out=total).add_(shifts[at])
        else:
            total.copy_(shifts[at].expand_as(total))
        inner, seen = torch.empty_like(total), columns[at[0]].mT
        own = units[:, *at].unbind(), factors[:, *at].unbind()
        for unit, factor in zip(*own, strict=True):
            torch.bmm(unit, seen, out=inner)
            activate_into(inner, inner, self.activation)
            torch.addcmul(total, inner, factor, out=total)

    def sums(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """As the parts, but for what is 1, and with a unit's bias on its own."""
        starts, ends, shifts, units, columns, factors = parts
        made = [torch.zeros_like(t) for t in (starts, ends, shifts)]
        made += [torch.zeros_like(t[..., :-1]).contiguous() for t in (units, columns)]
        return (*made, torch.empty_like(factors), torch.empty_like(factors))

    def pull(
        self,
        parts: tuple[Tensor, ...],
        sums: tuple[Tensor, ...],
        at: tuple[slice, slice],
        above: Float[Tensor, "p q k"],
    ) -> None:
        """The product's, then unit by unit, each computed again."""
        starts, ends, _, units, columns, factors = parts
        to_starts, to_ends, to_shift, to_rows, to_keys, to_out, to_bias = sums
        torch.sum(above, -1, keepdim=True, out=to_shift[at])
        if self.scale:
            to_starts[at].baddbmm_(above, ends[at[0]], alpha=self.scale)
            to_ends[at[0]].baddbmm_(above.mT, starts[at], alpha=self.scale)
        inner, active = torch.empty_like(above), torch.empty_like(above)
        column, seen = columns[at[0]].mT, columns[at[0]][..., :-1].contiguous()
        weights = units[:, *at][..., :-1] * factors[:, *at]
        own = (t[:, *at].unbind() for t in (units, to_rows, to_out, to_bias))
        for weight, unit, slope, by_out, by_bias in zip(weights.unbind(), *own, strict=True):
            torch.bmm(unit, column, out=inner)
            activate_into(active, inner, self.activation)
            slope_into(inner, above, active, self.activation)
            torch.sum(active.mul_(above), -1, keepdim=True, out=by_out)
            torch.sum(inner, -1, keepdim=True, out=by_bias)
            torch.bmm(inner, seen, out=slope)
            to_keys[at[0]].baddbmm_(inner.mT, weight)

    def gradients(
        self, parts: tuple[Tensor, ...], sums: tuple[Tensor, ...], batch: torch.Size
    ) -> tuple[Tensor, ...]:
        """Rows and biases still lack their unit's weight."""
        to_starts, to_ends, to_shift, to_rows, to_keys, to_out, to_bias = sums
        factors = parts[-1]
        found = (
            to_starts,
            to_ends,
            (to_rows * factors).movedim(0, 2),
            to_keys,
            to_out.squeeze(-1).movedim(0, -1),
            (to_bias * factors).squeeze(-1).movedim(0, -1),
            to_shift,
        )
        return tuple(t.unflatten(0, batch) for t in found)


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
    """``NetworkScores`` in plain operations: the reference, h n² (v + l w + l) multiply-adds."""
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
