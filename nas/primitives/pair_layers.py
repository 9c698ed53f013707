"""The network of two hidden layers over every pair, by which Neural Attention's authors score.

    scores_ij = third · relu(second relu(left_i + right_j) + bias) + shift

Written plainly (``sum_layers``), every layer of every pair is held, and walked through memory by
each operation. ``LayerSum`` computes a piece in cache, the layers before the pairs in memory so
that the second is one product, keeps nothing but its operands and computes layers again in the
backward pass: five to eight times faster on a CPU, in memory that does not grow with the layers.
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


def reduce_layers(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    second: Float[Tensor, "g m"],
    bias: Float[Tensor, "g"],
    third: Float[Tensor, "1 g"],
    shift: Float[Tensor, "1"],
) -> Float[Tensor, "b h q k"]:
    """Scores of pairs by layers of m and g units; the first is split between query and key."""
    operands = (left, right, second, bias, third, shift)
    keys, width = right.shape[2:]
    units = left.numel() * keys
    # Few pairs cost more calls than memory, and wide layers more multiplications, which cores that
    # multiply 16-bit matrices do faster.
    is_cheap = units < 2**19 or (left.dtype.itemsize == 2 and width > 32)
    rule = "planes" if is_cheap or left.device.type != "cpu" else "pieces"
    # Planes of this size are more memory than by_rows counts with.
    is_large = units > 2**27
    if is_recorded() or (not is_large and way("pair_layers", left, keys, width, rule) == "planes"):
        return sum_layers(*operands)
    return LayerSum.apply(*operands)


def sum_layers(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    second: Float[Tensor, "g m"],
    bias: Float[Tensor, "g"],
    third: Float[Tensor, "1 g"],
    shift: Float[Tensor, "1"],
) -> Float[Tensor, "b h q k"]:
    """``reduce_layers`` in plain operations: the reference, h n² (m g + g) multiply-adds."""
    hidden = F.relu(left.unsqueeze(3) + right.unsqueeze(2))
    return F.linear(F.relu(F.linear(hidden, second, bias)), third, shift).squeeze(-1)


class LayerSum(torch.autograd.Function):
    """``sum_layers`` without layers in memory; arguments as there.

    Sums are in float32, in float64 for float64; the result has the type of left and right.
    Second derivatives and ``torch.func``'s transforms take the plain form.
    """

    @staticmethod
    def forward(
        left: Float[Tensor, "b h q m"],
        right: Float[Tensor, "b h k m"],
        second: Float[Tensor, "g m"],
        bias: Float[Tensor, "g"],
        third: Float[Tensor, "1 g"],
        shift: Float[Tensor, "1"],
    ) -> Float[Tensor, "b h q k"]:
        queries, keys, weight, last = by_layer(left, right, second, bias, third)
        scores = left.new_empty(*queries.shape[1:3], right.shape[2])
        with torch.autocast(left.device.type, enabled=False):
            for at in pieces(scores, len(queries) + 1):
                outer = hidden_layers(queries[:, *at], keys[:, at[0]], weight)[1]
                scores[at] = (last @ outer).add_(shift).view_as(scores[at])
        return scores.unflatten(0, left.shape[:2])

    @staticmethod
    def setup_context(ctx: "Any", inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: "Any", gradient: Float[Tensor, "b h q k"]) -> tuple[Tensor, ...]:
        operands = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted
            return torch.func.vjp(sum_layers, *operands)[1](gradient)
        with torch.autocast(gradient.device.type, enabled=False):
            found = layer_gradients(by_layer(*operands[:-1]), gradient.flatten(0, 1))
        batch = gradient.shape[:2]
        shaped = (
            found[0].squeeze(-1).unflatten(1, batch).movedim(0, -1),
            found[1].squeeze(-2).unflatten(1, batch).movedim(0, -1),
            found[2][:, :-1],
            found[2][:, -1],
            found[3],
            found[4],
        )
        return tuple(g.to(o.dtype) for g, o in zip(shaped, operands, strict=True))

    @staticmethod
    def vmap(info: "Any", in_dims: tuple[int | None, ...], *operands: Tensor) -> tuple[Tensor, int]:
        """Under ``torch.vmap``: the plain form, whose operations have rules for batches."""
        return torch.vmap(sum_layers, in_dims)(*operands), 0


def by_layer(
    left: Tensor, right: Tensor, second: Tensor, bias: Tensor, third: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Operands as (m, b h, q, 1), (m, b h, 1, k), (g, m + 1) and (1, g), float32 or float64.

    The bias is the last weight, of an input that is 1.
    """
    wide = torch.promote_types(left.dtype, torch.float32)
    queries, keys = (t.to(wide).movedim(-1, 0).flatten(1, 2).contiguous() for t in (left, right))
    weight = torch.cat((second, bias.unsqueeze(-1)), -1).to(wide)
    return queries.unsqueeze(-1), keys.unsqueeze(-2), weight, third.to(wide)


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


def layer_gradients(
    operands: tuple[Tensor, Tensor, Tensor, Tensor], gradient: Float[Tensor, "p q k"]
) -> tuple[Tensor, ...]:
    """Gradients in the shapes of ``by_layer``'s results, and that of the shift."""
    queries, keys, weight, last = operands
    to_queries, to_keys, to_weight, to_last = (torch.zeros_like(t) for t in operands)
    backward = (weight[:, :-1] * last.T).T.contiguous()
    cut = torch.ops.aten.threshold_backward.grad_input
    for at in pieces(gradient, len(queries) + 1):
        hidden, outer = hidden_layers(queries[:, *at], keys[:, at[0]], weight)
        piece = gradient[at].to(outer.dtype)
        above = piece.reshape(1, -1)
        to_last.addmm_(above, outer.T)
        cut(above.expand_as(outer), outer, 0.0, grad_input=outer)
        to_weight.addmm_(outer, hidden.T)
        slope = backward @ outer
        cut(slope, hidden[:-1], 0.0, grad_input=slope)
        slope = slope.unflatten(1, piece.shape)
        to_queries[:, *at] = slope.sum(-1, keepdim=True)
        to_keys[:, at[0]] += slope.sum(-2, keepdim=True)
    shift = gradient.sum(dtype=to_last.dtype).view(1)
    return to_queries, to_keys, to_weight.mul_(last.T), to_last, shift
