"""The reduction that additive scores share: hidden units of a query and a key, summed.

    scores_ij = sum_m weight_m act(left_im + right_jm) + shift

Plainly (``sum_units``) one unit is a plane of pairs. In pieces it is two to four times faster on a
CPU (65 or 512 tokens, 16 units), in memory that does not grow with the units.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nas.kernels.pair_scores import PairScores
from nas.primitives.hidden_units import sum_units


class UnitScores(PairScores):
    """Scores of a hidden layer whose input is split between query and key.

    Operands: left (b, h, q, m), right (b, h, k, m), and shared by the heads or of each the units'
    weight, (m) or (h, m), and the shift, () or (h).

    Args:
        activation: gelu, relu, silu or tanh.
    """

    def __init__(self, activation: str) -> None:
        self.activation = activation

    def plain(self, *operands: Tensor) -> Float[Tensor, "b h q k"]:
        """See ``sum_units``."""
        left, right, weight, shift = operands
        return sum_units(left, right, weight, shift, self.activation)

    def numbers(self, *operands: Tensor) -> int:
        """Of all units."""
        return operands[0].numel() * operands[1].shape[2]

    def rule(self, *operands: Tensor) -> str:
        """Few pairs cost more calls than memory; and units of tanh take longer to compute again.

        Without AMX, at 65 and 257 tokens, pieces take .55 to .9 of the time of planes for relu,
        .8 to 1.05 for silu and gelu, 1.4 to 2.2 for tanh.
        """
        pairs = operands[0].shape[:3].numel() * operands[1].shape[2]
        return "planes" if pairs < 2**15 or self.activation == "tanh" else "pieces"

    def dtype(self, *operands: Tensor) -> torch.dtype:
        """That of the widest operand."""
        return torch.promote_types(operands[0].dtype, operands[2].dtype)

    def parts(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """The operands as (m, p, q, 1), (m, p, 1, k), (m, p, 1, 1) and (p, 1, 1)."""
        left, right, weight, shift = operands
        wide = torch.promote_types(left.dtype, torch.float32)
        batch, heads, _, count = left.shape
        queries, keys, factors = (
            tensor.to(wide).movedim(-1, 0).flatten(1, 2).contiguous()
            for tensor in (left, right, weight.expand(batch, heads, count))
        )
        shifts = shift.to(wide).expand(batch, heads).flatten()[..., None, None]
        return queries.unsqueeze(-1), keys.unsqueeze(-2), factors[..., None, None], shifts

    def fill(
        self, parts: tuple[Tensor, ...], at: tuple[slice, slice], total: Float[Tensor, "p q k"]
    ) -> None:
        """Unit by unit."""
        inner = torch.empty_like(total)
        total.copy_(parts[3][at[0]].expand_as(total))
        for query, key, factor in units_of(parts, at):
            torch.add(query, key, out=inner)
            activate_into(inner, inner, self.activation)
            torch.addcmul(total, inner, factor, out=total)

    def sums(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """As the parts; those of left and right still lack the weight."""
        return tuple(torch.zeros_like(part) for part in parts)

    def pull(
        self,
        parts: tuple[Tensor, ...],
        sums: tuple[Tensor, ...],
        at: tuple[slice, slice],
        above: Float[Tensor, "p q k"],
    ) -> None:
        """Unit by unit, each computed again."""
        inner, active = torch.empty_like(above), torch.empty_like(above)
        sums[3][at[0]] += above.sum((-2, -1), keepdim=True)
        for (query, key, _), total in zip(units_of(parts, at), units_of(sums, at), strict=True):
            torch.add(query, key, out=inner)
            activate_into(active, inner, self.activation)
            slope_into(inner, above, active, self.activation)
            total[0].copy_(inner.sum(-1, keepdim=True))
            total[1].add_(inner.sum(-2, keepdim=True))
            total[2].add_(active.mul_(above).sum((-2, -1), keepdim=True))

    def gradients(
        self, parts: tuple[Tensor, ...], sums: tuple[Tensor, ...], batch: torch.Size
    ) -> tuple[Tensor, ...]:
        """Those of weight and shift for each of batch and heads."""
        queries, keys = (sums[0] * parts[2]).squeeze(-1), (sums[1] * parts[2]).squeeze(-2)
        shaped = (t.unflatten(1, batch).movedim(0, -1) for t in (queries, keys))
        return (*shaped, sums[2].view(len(sums[2]), *batch).movedim(0, -1), sums[3].view(batch))


def units_of(parts: tuple[Tensor, ...], at: tuple[slice, slice]) -> list[tuple[Tensor, ...]]:
    """One piece of the parts, unit by unit."""
    left, right, weight = parts[:3]
    own = left[:, *at], right[:, at[0]], weight[:, at[0]]
    return list(zip(*(part.unbind() for part in own), strict=True))


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
