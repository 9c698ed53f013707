"""Normalisers: functions that turn scores into weights, dense and sparse, and a filter of scores.

Sparsemax (p = 1) and 1.5-entmax (p = 2), which give most keys the weight zero, compute

    weights_ij = max(scores_ij / p - t_i, 0)^p,  with t_i such that row i sums to 1
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import (
    LEAST_HEADS,
    Role,
    always,
    normaliser,
    primitive,
    score_change,
)
from nas.genome.primitives.domains import Flag, Integer
from nas.genome.primitives.signs import lowered, rectified
from nas.genome.primitives.tensors import Mask, Scores, below_top, count_visible, hide


def masked_softmax(scores: Scores, mask: Mask, filtered: bool) -> Scores:
    """Return the softmax of each row over the visible keys; a row without any gives zeros."""
    if mask is None and not filtered:
        return torch.softmax(scores, dim=-1)
    scores = hide(scores, mask)
    # The softmax of a row without keys would be NaN.
    empty = scores.detach().amax(dim=-1, keepdim=True) == -torch.inf
    return torch.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)


@normaliser("softmax", "softmax({scores})", "Vaswani et al. 2017, eq. 1")
class Softmax(nn.Module):
    """Softmax over the visible keys; a query that sees no key gets weights of zero.

    weights_ij = exp(scores_ij) / sum_k exp(scores_ik)
    """

    def __init__(self, filtered: bool = False) -> None:
        super().__init__()
        self.filtered = filtered

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return masked_softmax(scores, mask, self.filtered)


@normaliser("softmax_one", "softmax₁({scores})", "Miller 2023, 'Attention Is Off By One'")
class SoftmaxOne(nn.Module):
    """Softmax over the visible keys and one additional key, whose score and value are zero.

    weights_ij = exp(scores_ij) / (1 + sum_k exp(scores_ik)); each row sums to less than 1
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return torch.softmax(F.pad(hide(scores, mask), (1, 0)), dim=-1)[..., 1:]


@normaliser(
    "softmax_sink",
    "softmax_sink({scores})",
    "OpenAI 2025 (gpt-oss, arXiv 2508.10925); Xiao et al. 2024",
)
class SoftmaxSink(nn.Module):
    """Softmax over the visible keys and one additional key, with a learned score and value zero.

    weights_ij = exp(scores_ij) / (exp(t_h) + sum_k exp(scores_ik)), with t_h initially zero
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(heads))

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        first = self.sink.to(scores.dtype).view(-1, 1, 1).expand(*scores.shape[:3], 1)
        return torch.softmax(torch.cat((first, hide(scores, mask)), dim=-1), dim=-1)[..., 1:]


@normaliser(
    "sigmoid",
    "sigmoid({scores})",
    "Evolving Attention, section 2.1; length bias: Ramapuram et al. 2024, section 3",
    parameters={"length_bias": Flag(default=False)},
)
class Sigmoid(nn.Module):
    """Sigmoid of each visible score; rows do not sum to 1.

    weights_ij = sigmoid(scores_ij + b), with b = 0, so that row sums grow with the number n of
    visible keys; or, with ``length_bias``, b = -log n, which keeps row sums near 1.
    """

    def __init__(self, *, length_bias: bool = False) -> None:
        super().__init__()
        self.length_bias = length_bias

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        hidden = hide(scores, mask)
        if self.length_bias:
            hidden = hidden - count_visible(scores, mask).log()
        return torch.sigmoid(hidden).to(scores.dtype)


@normaliser(
    "relu_squared",
    "ReLU²({scores})/n",
    "Hua et al. 2022 (FLASH), section 3.2; 1/n: Wortsman et al. 2023, section 3",
    sign=rectified,
)
class ReluSquared(nn.Module):
    """Squared ReLU of each score x, divided by the number n of visible keys: max(x, 0)^2 / n."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        positive = hide(scores, mask).relu()
        # Divided before it is squared: a square can overflow 16 bits.
        return (positive / count_visible(scores, mask).sqrt()).square().to(scores.dtype)


@normaliser(
    "softmax_free",
    "{scores}/n",
    "Cao 2021 (Choose a Transformer: Fourier or Galerkin), eq. 5",
    parameters={"divide": Flag(default=True)},
)
class SoftmaxFree(nn.Module):
    """Scores of the visible keys, divided by their number n if ``divide``; they may be negative.

    With dot products this is linear attention.
    """

    def __init__(self, filtered: bool = False, *, divide: bool = True) -> None:
        super().__init__()
        self.filtered = filtered
        self.divide = divide

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        weights = scores
        if self.divide:
            weights = scores / count_visible(scores, mask).to(scores.dtype)
        if self.filtered:
            weights = weights.masked_fill(scores == -torch.inf, 0.0)
        return weights if mask is None else weights.masked_fill(~mask, 0.0)


@normaliser(
    "ratio", "ratio({scores})", "Katharopoulos et al. 2020 (Transformers are RNNs)", sign=rectified
)
class Ratio(nn.Module):
    """Scores divided by their sum over the visible keys; negative scores count as zero.

    weights_ij = s_ij / max(sum_k s_ik, 1e-6 n), with s = max(scores, 0) and n visible keys
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        count = count_visible(scores, mask)
        parts = hide(scores, mask).relu().to(count.dtype) / count
        return (parts / parts.sum(dim=-1, keepdim=True).clamp(min=1e-6)).to(scores.dtype)


@normaliser(
    "softpick",
    "softpick({scores})",
    "Zuhri et al. 2025 (Softpick, arXiv 2504.20966)",
    sign=rectified,
)
class Softpick(nn.Module):
    """Rectified softmax: keys with negative scores get weight zero; rows sum to less than 1.

    weights_ij = max(exp(s_ij) - 1, 0) / (1e-6 + sum_k |exp(s_ik) - 1|), with all exponentials
    divided by exp(m), where m is the largest visible score of the row, or zero if that is negative
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        hidden = hide(scores, mask)
        exact = hidden.to(torch.promote_types(scores.dtype, torch.float32))
        top = exact.detach().amax(dim=-1, keepdim=True).clamp(min=0.0)
        # An excluded key, with exponential zero, does not count in the sum.
        # Of scores near zero, the difference of the exponentials would lose most digits.
        small = exact.clamp(max=1.0).expm1() * (-top).exp()
        parts = torch.where(exact < 1.0, small, (exact - top).exp() - (-top).exp())
        parts = parts.masked_fill(hidden == -torch.inf, 0.0)
        total = parts.abs().sum(dim=-1, keepdim=True) + 1e-6
        return (parts.relu() / total).to(scores.dtype)


@normaliser(
    "stick_breaking",
    "stick({scores})",
    "Tan et al. 2024 (Stick-breaking Attention, arXiv 2410.17980)",
)
class StickBreaking(nn.Module):
    """Each key, from the last visible one backwards, takes a share of the weight that is left.

    weights_ij = sigmoid(s_ij) prod_{k > j} (1 - sigmoid(s_ik)), over the visible keys k after j.
    Under a causal mask the query's own token comes first; the paper excludes it.
    """

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        hidden = hide(scores, mask)
        excluded = hidden == -torch.inf
        exact = hidden.masked_fill(excluded, 0.0).to(
            torch.promote_types(scores.dtype, torch.float32)
        )
        left = F.logsigmoid(-exact).masked_fill(excluded, 0.0)
        # The logarithm of what the keys after each key leave: a sum from the last key backwards.
        after = F.pad(left, (-1, 1)).flip(-1).cumsum(dim=-1).flip(-1)
        weights = (F.logsigmoid(exact) + after).exp()
        return weights.masked_fill(excluded, 0.0).to(scores.dtype)


@primitive(
    "uniform",
    "scores: scores[h] -> weights[h]",
    "key: tokens[h,w] -> weights[h]",
    role=Role.NORMALIZE,
    notation="uniform",
    source="control: a mean over the keys",
    parameters={"heads": LEAST_HEADS},
    is_featurewise=always,
    unread=lambda params: ("scores", "key"),
)
class Uniform(nn.Module):
    """Equal weights 1 / n for the n visible keys, so that values are averaged.

    ``heads`` is the label of the smallest head count of the weights, which the normal form of a
    genome sets where it replaces scores by a stream with fewer heads.
    """

    def __init__(self, *, heads: str = "one") -> None:
        super().__init__()
        self.label = heads

    def forward(
        self, operand: Float[Tensor, "b h k _"], x: Float[Tensor, "b q d"], mask: Mask = None
    ) -> Scores:
        # There may be more keys than queries, of which x has the number; the operand may be scores.
        keys = operand.shape[2] if mask is None else mask.shape[-1]
        shape = (*operand.shape[:2], x.shape[1], keys)
        if mask is None:
            return operand.new_full(shape, 1.0 / keys)
        visible = mask.expand(shape).to(operand.dtype)
        return visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)


def threshold_weights(scores: Scores, mask: Mask, power: int) -> Scores:
    """Return sparsemax (``power`` 1) or 1.5-entmax (``power`` 2) of the scores of visible keys.

    Gradients flow only through the keys with positive weight, whose selection counts as a constant.
    """
    z = below_top(scores if power == 1 else scores / 2.0, mask)
    support = support_of(z.detach(), power)
    size = support.sum(dim=-1, keepdim=True).clamp(min=1)
    if power == 1:
        threshold = (z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) - 1.0) / size
        return (z - threshold).clamp(min=0.0).to(scores.dtype)
    mean = z.masked_fill(~support, 0.0).sum(dim=-1, keepdim=True) / size
    spread = (z - mean).masked_fill(~support, 0.0).square().sum(dim=-1, keepdim=True)
    # On the true support spread < 1; the floor avoids the root of zero after rounding.
    root = ((1.0 - spread).clamp(min=1e-12) / size).sqrt()
    weights = (z - mean + root).clamp(min=0.0).square()
    return weights.masked_fill(~support, 0.0).to(scores.dtype)


def support_of(z: Scores, power: int) -> Bool[Tensor, "b h q k"]:
    """Return a mask of the keys with positive weight, given the result ``z`` of ``below_top``.

    In descending order they are the longest prefix whose last entry exceeds the threshold that the
    entries of this prefix alone would have.
    """
    ordered = z.sort(dim=-1, descending=True).values
    rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=z.dtype)
    total = ordered.cumsum(dim=-1)
    if power == 1:
        inside = 1.0 + rank * ordered > total
    else:
        mean = total / rank
        spread = ordered.square().cumsum(dim=-1) - rank * mean.square()
        inside = mean - ((1.0 - spread).clamp(min=0.0) / rank).sqrt() < ordered
    last = (inside & (ordered > -2.0)).sum(dim=-1, keepdim=True)
    edge = ordered.gather(-1, (last - 1).clamp(min=0))
    return (z >= edge) & (last > 0)


@normaliser("sparsemax", "sparsemax({scores})", "Martins and Astudillo 2016, eq. 2 and algorithm 1")
class Sparsemax(nn.Module):
    """Projection of each row of scores onto the simplex: max(scores_ij - t_i, 0)."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return threshold_weights(scores, mask, 1)


@normaliser("entmax15", "entmax₁.₅({scores})", "Peters et al. 2019, eq. 10 and algorithm 2")
class Entmax15(nn.Module):
    """Entmax with alpha = 1.5, between softmax and sparsemax: max(scores_ij / 2 - t_i, 0)^2."""

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return threshold_weights(scores, mask, 2)


def keep_largest(scores: Scores, mask: Mask, count: int) -> Scores:
    """Return the scores with -inf below the ``count``-th largest visible score of their row."""
    hidden = hide(scores, mask)
    ordered = hidden.detach().sort(dim=-1, descending=True).values
    rank = torch.arange(scores.shape[-1], device=scores.device)
    least = ordered.masked_fill(rank >= count, torch.inf).amin(dim=-1, keepdim=True)
    return hidden.masked_fill(hidden < least, -torch.inf)


@score_change(
    "topk_filter",
    "top_{k}({scores})",
    "Evolving Attention, section 2.1 (k = 10)",
    parameters={"k": Integer(default=10, low=1, high=65536)},
    sign=lowered,
)
class TopkFilter(nn.Module):
    """The k largest visible scores of each row; all smaller scores become -inf."""

    is_filter = True

    def __init__(self, *, k: int = 10) -> None:
        super().__init__()
        self.k = k

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return keep_largest(scores, mask, self.k)


@normaliser(
    "topk_softmax",
    "softmax_top{k}({scores})",
    "Gupta et al. 2021 (Memory-efficient Transformers via Top-k Attention), section 2",
    parameters={"k": Integer(default=10, low=1, high=65536)},
)
class TopkSoftmax(nn.Module):
    """Softmax over the k largest visible scores of each row, as softmax after topk_filter."""

    def __init__(self, filtered: bool = False, *, k: int = 10) -> None:
        super().__init__()
        self.filtered = filtered
        self.k = k

    def forward(self, scores: Scores, mask: Mask = None) -> Scores:
        return masked_softmax(keep_largest(scores, mask, self.k), mask, filtered=True)
