"""Scores that a small network gives every pair: plain, or piece by piece in cache.

Written plainly, a network's hidden units are planes of pairs, kept for the backward pass, and every
operation walks all of them through memory. ``PairScores`` says what a kind of score is on a piece
of the plane, and how gradients leave it; ``Scored`` makes a plane of scores of it, and ``Attended``
goes on to softmax and to the values before a piece leaves the cache. Neither keeps anything of a
unit: units are computed again in the backward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from nas.kernels import way
from nas.primitives.masks import mask_bias
from nas.primitives.pieces import is_recorded, pieces
from nas.primitives.softmax import masked_softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class PairScores:
    """A kind of score: from tensors, its operands, to a number for each pair.

    The first operand has a row for each query, (b, h, q, ...), the second one for each key,
    (b, h, k, ...). *Parts* are the operands as pieces read them, in float32 at least, with batch
    and heads as one dimension, p; a piece is at = (planes, queries), slices of p and q.

    Attributes:
        pattern: the name under which its two ways are measured.
    """

    pattern = ""
    largest = 2**26
    """Numbers of the plain form beyond which it is more memory than by_rows counts with."""

    def plain(self, *operands: Tensor) -> Float[Tensor, "b h q k"]:
        """The scores in plain operations: the reference, and what is counted and exported."""
        raise NotImplementedError

    def size(self, *operands: Tensor) -> tuple[int, int]:
        """How wide a pair is, for ``nas.kernels.way``, and how many numbers a plane is."""
        raise NotImplementedError

    def rule(self, *operands: Tensor) -> str:
        """Where nothing was measured, on a CPU: planes or pieces."""
        raise NotImplementedError

    def dtype(self, *operands: Tensor) -> torch.dtype:
        """The type of the plain form's result."""
        raise NotImplementedError

    def spread(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """The parts."""
        raise NotImplementedError

    def fill(
        self, parts: tuple[Tensor, ...], at: tuple[slice, slice], total: Float[Tensor, "p q k"]
    ) -> None:
        """``total`` becomes the scores of a piece."""
        raise NotImplementedError

    def sums(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What ``pull`` adds gradients to, before any piece."""
        raise NotImplementedError

    def pull(
        self,
        parts: tuple[Tensor, ...],
        sums: tuple[Tensor, ...],
        at: tuple[slice, slice],
        above: Float[Tensor, "p q k"],
    ) -> None:
        """Add a piece's gradients to the sums, from its scores' gradient, which is contiguous."""
        raise NotImplementedError

    def gradients(
        self, parts: tuple[Tensor, ...], sums: tuple[Tensor, ...], batch: torch.Size
    ) -> tuple[Tensor, ...]:
        """The operands' gradients, in their shapes; ``batch`` is (b, h)."""
        raise NotImplementedError


def score_pairs(score: PairScores, *operands: Tensor) -> Float[Tensor, "b h q k"]:
    """The scores of all pairs, in the faster way."""
    if goes_by_pieces(score, operands):
        found: Tensor = Scored.apply(score, *operands)
        return found
    return score.plain(*operands)


def attend_pairs(
    pairs: tuple[PairScores, tuple[Tensor, ...]],
    values: Float[Tensor, "b h k v"],
    mask: Bool[Tensor, "..."] | None,
) -> Float[Tensor, "b h q v"]:
    """softmax(scores)·values over the visible keys, in the faster way; a row without keys is zero.

    Args:
        pairs: a kind of score, and its operands.
        mask: broadcastable to (b, h, q, k), True where attention is allowed; None for all.
    """
    score, operands = pairs
    if goes_by_pieces(score, operands):
        is_trained = any(x.requires_grad for x in (values, *operands)) and torch.is_grad_enabled()
        found: Tensor = Attended.apply(score, is_trained, mask, values, *operands)[0]
        return found
    return masked_softmax(score.plain(*operands), mask, False) @ values


def goes_by_pieces(score: PairScores, operands: tuple[Tensor, ...]) -> bool:
    """Whether pieces are the way that was measured or, where nothing was, the rule's."""
    if is_recorded():
        return False
    first, keys = operands[0], operands[1].shape[2]
    width, numbers = score.size(*operands)
    rule = score.rule(*operands) if first.device.type == "cpu" else "planes"
    return numbers > score.largest or way(score.pattern, first, keys, width, rule) == "pieces"


class Scored(torch.autograd.Function):
    """``score.plain`` of the operands, without planes of units in memory.

    Sums are in float32, in float64 for float64. Second derivatives and ``torch.func``'s transforms
    take the plain form.
    """

    @staticmethod
    def forward(score: PairScores, *operands: Tensor) -> Float[Tensor, "b h q k"]:
        first, keys = operands[0], operands[1].shape[2]
        with torch.autocast(first.device.type, enabled=False):
            parts = score.spread(*operands)
            wide, kind = parts[0].dtype, score.dtype(*operands)
            shape = first.shape[:2].numel(), first.shape[2], keys
            scores = first.new_empty(shape, dtype=kind)
            for at in pieces(scores):
                # In place where the result is as wide as its sums.
                total = scores[at] if kind == wide else torch.empty_like(scores[at], dtype=wide)
                score.fill(parts, at, total)
                if kind != wide:
                    scores[at] = total
        return scores.unflatten(0, first.shape[:2])

    @staticmethod
    def setup_context(ctx: "Any", inputs: tuple["Any", ...], output: Tensor) -> None:
        ctx.score, *operands = inputs
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: "Any", gradient: Float[Tensor, "b h q k"]) -> tuple[Tensor | None, ...]:
        score, operands = ctx.score, ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted
            return (None, *torch.func.vjp(score.plain, *operands)[1](gradient))
        above = gradient.flatten(0, 1)
        with torch.autocast(gradient.device.type, enabled=False):
            parts = score.spread(*operands)
            sums = score.sums(parts)
            for at in pieces(above):
                score.pull(parts, sums, at, above[at].to(parts[0].dtype).contiguous())
            found = score.gradients(parts, sums, gradient.shape[:2])
        return (None, *like(operands, found))

    @staticmethod
    def vmap(
        info: "Any", in_dims: tuple[int | None, ...], score: PairScores, *operands: Tensor
    ) -> tuple[Tensor, int]:
        """Under ``torch.vmap``: the plain form, whose operations have rules for batches."""
        return torch.vmap(score.plain, in_dims[1:])(*operands), 0


class Attended(torch.autograd.Function):
    """softmax(scores)·values and, for a training, the weights: all that is kept of pairs.

    Types, second derivatives and transforms as of ``Scored``; products with values have the type
    that they have in plain operations.
    """

    @staticmethod
    def forward(
        score: PairScores,
        is_trained: bool,
        mask: Bool[Tensor, "..."] | None,
        values: Float[Tensor, "b h k v"],
        *operands: Tensor,
    ) -> tuple[Float[Tensor, "b h q v"], Tensor]:
        queries, (batch, heads, keys, width) = operands[0].shape[2], values.shape
        given = values.to(product_dtype(values)).flatten(0, 1)
        with torch.autocast(values.device.type, enabled=False):
            parts = score.spread(*operands)
            plane = parts[0].new_empty(()).expand(batch * heads, queries, keys)
            weights = parts[0].new_empty(plane.shape if is_trained else 0)
            result = given.new_empty(batch * heads, queries, width)
            if mask is not None:
                hidden, seen = mask_bias(mask, plane), mask.any(dim=-1, keepdim=True)
            for at in pieces(plane):
                total = plane.new_empty(plane[at].shape)
                score.fill(parts, at, total)
                if mask is not None:
                    total += piece_of(hidden, at, (batch, heads, queries, keys))
                own = torch.softmax(total, -1, out=weights[at] if is_trained else total)
                if mask is not None:
                    own *= piece_of(seen, at, (batch, heads, queries, 1))
                torch.bmm(own.to(given.dtype), given[at[0]], out=result[at])
        return result.unflatten(0, (batch, heads)), weights

    @staticmethod
    def setup_context(ctx: "Any", inputs: tuple["Any", ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.score, _, mask, *given = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], mask, *given)

    @staticmethod
    def backward(
        ctx: "Any", gradient: Float[Tensor, "b h q v"] | None, _: None
    ) -> tuple[Tensor | None, ...]:
        score, (weights, mask, *given) = ctx.score, ctx.saved_tensors
        if gradient is None:  # nobody asks
            return (None,) * (3 + len(given))
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted
            pull = torch.func.vjp(plain_attention(score, mask), *given)[1]
            return (None, None, None, *pull(gradient))
        values, *operands = given
        with torch.autocast(gradient.device.type, enabled=False):
            parts = score.spread(*operands)
            sums, wide = score.sums(parts), parts[0].dtype
            outer = gradient.flatten(0, 1).contiguous()
            columns = values.flatten(0, 1).to(outer.dtype)
            to_values = torch.zeros_like(columns, dtype=wide)
            back = torch.ops.aten._softmax_backward_data.out
            for at in pieces(weights):
                own = weights[at]
                to_values[at[0]] += own.mT.to(outer.dtype) @ outer[at]
                above = (outer[at] @ columns[at[0]].mT).to(wide)
                back(above, own, -1, wide, grad_input=above)
                score.pull(parts, sums, at, above)
            found = (
                to_values.unflatten(0, gradient.shape[:2]),
                *score.gradients(parts, sums, gradient.shape[:2]),
            )
        return (None, None, None, *like(given, found))

    @staticmethod
    def vmap(
        info: "Any",
        in_dims: tuple[int | None, ...],
        score: PairScores,
        is_trained: bool,
        mask: Tensor | None,
        *given: Tensor,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, None]]:
        """Under ``torch.vmap``: the plain form, whose operations have rules for batches."""

        def plain(mask: Tensor | None, *own: Tensor) -> Tensor:
            return plain_attention(score, mask)(*own)

        found = torch.vmap(plain, in_dims[2:])(mask, *given)
        return (found, found.new_empty(0)), (0, None)


def plain_attention(score: PairScores, mask: Bool[Tensor, "..."] | None) -> "Callable[..., Tensor]":
    """``attend_pairs`` in plain operations, of the values and the operands alone."""

    def attend(values: Tensor, *operands: Tensor) -> Tensor:
        return masked_softmax(score.plain(*operands), mask, False) @ values

    return attend


def like(operands: "Sequence[Tensor]", gradients: tuple[Tensor, ...]) -> list[Tensor]:
    """Gradients in the operands' types, summed where an operand is shared."""
    pairs = zip(operands, gradients, strict=True)
    return [found.sum_to_size(own.shape).to(own.dtype) for own, found in pairs]


def product_dtype(x: Tensor) -> torch.dtype:
    """The type of a product with a tensor: under autocast that of autocast."""
    device = x.device.type
    is_mixed = torch.is_autocast_enabled(device) and x.dtype != torch.float64
    return torch.get_autocast_dtype(device) if is_mixed else x.dtype


def piece_of(
    x: Shaped[Tensor, "..."], at: tuple[slice, slice], shape: tuple[int, int, int, int]
) -> Shaped[Tensor, "p q k"]:
    """What is broadcastable to the shape, (b, h, q, k), on a piece of its plane."""
    batch, heads = shape[:2]
    if x.shape[:-2].numel() == 1:  # one plane for all
        return x.expand(shape)[0, :1, at[1]]
    own = torch.arange(batch * heads, device=x.device)[at[0]]
    return x.expand(shape)[own // heads, own % heads, at[1]]
