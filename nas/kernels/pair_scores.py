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

from nas.kernels.normalisers import fast_softmax, mask_bias
from nas.kernels.pieces import is_recorded, pieces, product_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class PairScores:
    """A kind of score: what it is for each pair, by its operands, and how gradients leave it.

    The first operand has a row for each query, (b, h, q, ...), the second one for each key,
    (b, h, k, ...). *Parts* are the operands as pieces read them, in float32 at least, with batch
    and heads as one dimension, p; a piece is at = (planes, queries), slices of p and q.
    """

    largest = 2**26
    """Numbers of the plain form's units, a quarter of a gibibyte, beyond which it is not taken."""

    def plain(self, *operands: Tensor) -> Float[Tensor, "b h q k"]:
        """The scores in plain operations: the reference, and what is counted and exported."""
        raise NotImplementedError

    def numbers(self, *operands: Tensor) -> int:
        """How many numbers the units of all pairs are."""
        raise NotImplementedError

    def rule(self, *operands: Tensor) -> str:
        """Which is faster on a CPU: planes or pieces."""
        raise NotImplementedError

    def dtype(self, *operands: Tensor) -> torch.dtype:
        """The type of the plain form's result."""
        raise NotImplementedError

    def parts(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """The operands as pieces read them."""
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
    return plain_attention(score, mask, values, *operands)


def plain_attention(
    score: PairScores,
    mask: Bool[Tensor, "..."] | None,
    values: Float[Tensor, "b h k v"],
    *operands: Tensor,
) -> Float[Tensor, "b h q v"]:
    """``attend_pairs`` in plain operations: the reference."""
    return fast_softmax(score.plain(*operands), mask) @ values


def goes_by_pieces(score: PairScores, operands: tuple[Tensor, ...]) -> bool:
    """Whether pieces are the faster way, or planes would be too many."""
    device = operands[0].device.type
    if is_recorded() or device == "meta":
        return False
    is_large = score.numbers(*operands) > score.largest
    return is_large or (device == "cpu" and score.rule(*operands) == "pieces")


class Scored(torch.autograd.Function):
    """``score.plain`` of the operands, without planes of units in memory.

    Sums are in float32, in float64 for float64. Second derivatives and ``torch.func``'s transforms
    take the plain form; ``is_grads_batched`` and forward mode are not for it.
    """

    @staticmethod
    def forward(score: PairScores, *operands: Tensor) -> Float[Tensor, "b h q k"]:
        first, keys = operands[0], operands[1].shape[2]
        with torch.autocast(first.device.type, enabled=False):
            parts = score.parts(*operands)
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
        ctx.precision = precision_of(output)
        ctx.save_for_backward(*operands)

    @staticmethod
    def backward(ctx: "Any", gradient: Float[Tensor, "b h q k"]) -> tuple[Tensor | None, ...]:
        score, operands = ctx.score, ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted
            with torch.autocast(*ctx.precision):
                pull = torch.func.vjp(score.plain, *operands)[1]
            return (None, *pull(gradient))
        above = gradient.flatten(0, 1)
        with torch.autocast(gradient.device.type, enabled=False):
            parts = score.parts(*operands)
            sums = score.sums(parts)
            for at in pieces(above):
                score.pull(parts, sums, at, above[at].to(parts[0].dtype).contiguous())
            found = score.gradients(parts, sums, gradient.shape[:2])
        return (None, *gradients_like(operands, found))

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
            parts = score.parts(*operands)
            plane = parts[0].new_empty(()).expand(batch * heads, queries, keys)
            weights = parts[0].new_empty(plane.shape if is_trained else 0)
            result = given.new_empty(batch * heads, queries, width)
            if mask is not None:
                # Rows without visible keys stay as they are, free of NaN.
                seen = mask.any(dim=-1, keepdim=True)
                hidden = mask_bias(mask | ~seen, plane)
            for at in pieces(plane):
                total = plane.new_empty(plane[at].shape)
                score.fill(parts, at, total)
                if mask is not None:
                    total += piece_of(hidden, at, batch, heads)
                own = torch.softmax(total, -1, out=weights[at] if is_trained else total)
                if mask is not None:
                    own *= piece_of(seen, at, batch, heads)
                torch.bmm(own.to(given.dtype), given[at[0]], out=result[at])
        return result.unflatten(0, (batch, heads)), weights

    @staticmethod
    def setup_context(ctx: "Any", inputs: tuple["Any", ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.score, _, mask, *given = inputs
        ctx.precision = precision_of(output[0])
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
            with torch.autocast(*ctx.precision):
                pull = torch.func.vjp(lambda *own: plain_attention(score, mask, *own), *given)[1]
            return (None, None, None, *pull(gradient))
        values, *operands = given
        with torch.autocast(gradient.device.type, enabled=False):
            parts = score.parts(*operands)
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
        return (None, None, None, *gradients_like(given, found))

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
        batched = torch.vmap(lambda *own: plain_attention(score, *own), in_dims[2:])
        found = batched(mask, *given)
        return (found, found.new_empty(0)), (0, None)


def precision_of(x: Tensor) -> tuple[str, torch.dtype, bool]:
    """What ``torch.autocast`` takes to compute as is done now."""
    device = x.device.type
    return device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)


def gradients_like(operands: "Sequence[Tensor]", gradients: tuple[Tensor, ...]) -> list[Tensor]:
    """Gradients in the operands' types, summed where an operand is shared."""
    pairs = zip(operands, gradients, strict=True)
    return [found.sum_to_size(own.shape).to(own.dtype) for own, found in pairs]


def piece_of(
    x: Shaped[Tensor, "..."], at: tuple[slice, slice], batch: int, heads: int
) -> Shaped[Tensor, "p q k"]:
    """What is broadcastable to (b, h, q, k), broadcastable to a piece of its plane."""
    whole = x[(None,) * (4 - x.dim())]
    rows = at[1] if whole.shape[2] > 1 else slice(None)
    if whole.shape[:2].numel() == 1:  # one plane for all
        return whole[0, :1, rows]
    own = torch.arange(batch * heads, device=x.device)[at[0]]
    return whole.expand(batch, heads, -1, -1)[own // heads, own % heads, rows]
