"""The network of two hidden layers over every pair, by which Neural Attention's authors score.

    scores_ij = third · relu(second relu(left_i + right_j) + bias) + shift

Plainly (``sum_layers``) every layer of every pair is in memory. In pieces, of which the layers
before the second are in memory so that it is one product, it is five to eight times faster on a
CPU, in memory that does not grow with the layers.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from nas.kernels.pair_scores import PairScores
from nas.kernels.pieces import pieces
from nas.primitives.neural_attention_authors import sum_layers


class LayerScores(PairScores):
    """Scores of pairs by layers of m and g units; the first is split between query and key.

    Operands: left (b, h, q, m), right (b, h, k, m); shared by all heads, the second layer (g, m)
    with its bias (g), the third (1, g) with its own (1).
    """

    def plain(self, *operands: Tensor) -> Float[Tensor, "b h q k"]:
        """See ``sum_layers``."""
        left, right, second, bias, third, shift = operands
        return sum_layers(left, right, second, bias, third, shift)

    def numbers(self, *operands: Tensor) -> int:
        """Of the first layer."""
        return operands[0].numel() * operands[1].shape[2]

    def rule(self, *operands: Tensor) -> str:
        """Few pairs cost more calls than memory; wide layers in 16 bits, more multiplications."""
        is_wide = operands[0].dtype.itemsize == 2 and operands[0].shape[3] > 32
        return "planes" if is_wide or self.numbers(*operands) < 2**19 else "pieces"

    def dtype(self, *operands: Tensor) -> torch.dtype:
        """That of left and right."""
        return operands[0].dtype

    def parts(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """The operands as (m, p, q, 1), (m, p, 1, k), (g, m + 1), (1, g) and (1).

        The bias is the last weight, of an input that is 1.
        """
        left, right, second, bias, third, shift = operands
        wide = torch.promote_types(left.dtype, torch.float32)
        queries, keys = (
            t.to(wide).movedim(-1, 0).flatten(1, 2).contiguous() for t in (left, right)
        )
        weight = torch.cat((second, bias.unsqueeze(-1)), -1).to(wide)
        return queries.unsqueeze(-1), keys.unsqueeze(-2), weight, third.to(wide), shift.to(wide)

    def fill(
        self, parts: tuple[Tensor, ...], at: tuple[slice, slice], total: Float[Tensor, "p q k"]
    ) -> None:
        """Both layers, then their sum; fewer pairs at a time."""
        weight, last, shift = parts[2:]
        queries, keys = parts[0][:, *at], parts[1][:, at[0]]
        for own in pieces(total, len(queries) + 1):
            outer = hidden_layers(queries[:, *own], keys[:, own[0]], weight)[1]
            torch.addmm(shift, last, outer, out=total[own].view(1, -1))

    def sums(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """As the parts."""
        return tuple(torch.zeros_like(part) for part in parts)

    def pull(
        self,
        parts: tuple[Tensor, ...],
        sums: tuple[Tensor, ...],
        at: tuple[slice, slice],
        above: Float[Tensor, "p q k"],
    ) -> None:
        """Layer by layer, both computed again; fewer pairs at a time."""
        weight, last = parts[2:4]
        queries, keys = parts[0][:, *at], parts[1][:, at[0]]
        to_weight, to_last, to_shift = sums[2:]
        to_queries, to_keys = sums[0][:, *at], sums[1][:, at[0]]
        to_shift += above.sum()
        backward = (weight[:, :-1] * last.T).T.contiguous()
        cut = torch.ops.aten.threshold_backward.grad_input
        for own in pieces(above, len(queries) + 1):
            hidden, outer = hidden_layers(queries[:, *own], keys[:, own[0]], weight)
            flat = above[own].view(1, -1)
            to_last.addmm_(flat, outer.T)
            cut(flat.expand_as(outer), outer, 0.0, grad_input=outer)
            to_weight.addmm_(outer, hidden.T)
            slope = backward @ outer
            cut(slope, hidden[:-1], 0.0, grad_input=slope)
            slope = slope.unflatten(1, above[own].shape)
            to_queries[:, *own] = slope.sum(-1, keepdim=True)
            to_keys[:, own[0]] += slope.sum(-2, keepdim=True)

    def gradients(
        self, parts: tuple[Tensor, ...], sums: tuple[Tensor, ...], batch: torch.Size
    ) -> tuple[Tensor, ...]:
        """The second layer's still lack the third's weight."""
        to_queries, to_keys, to_weight, to_last, to_shift = sums
        second = to_weight * parts[3].T
        left, right = (
            t.unflatten(1, batch).movedim(0, -1)
            for t in (to_queries.squeeze(-1), to_keys.squeeze(-2))
        )
        return left, right, second[:, :-1], second[:, -1], to_last, to_shift


def hidden_layers(
    queries: Float[Tensor, "m p q 1"], keys: Float[Tensor, "m p 1 k"], weight: Float[Tensor, "g i"]
) -> tuple[Tensor, Tensor]:
    """The hidden layers of a piece: (m + 1, p q k), whose last row is 1, and (g, p q k)."""
    count, planes, rows, _ = queries.shape
    hidden = queries.new_empty(count + 1, planes, rows, keys.shape[-1])
    torch.add(queries, keys, out=hidden[:-1]).clamp_min_(0.0)
    hidden[-1] = 1.0
    hidden = hidden.flatten(1)
    return hidden, (weight @ hidden).clamp_min_(0.0)
