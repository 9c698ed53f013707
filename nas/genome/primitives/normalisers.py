"""Dense normalisers: softmax, sigmoid, squared ReLU, scores and sums of scores, and a mean.

The module ``sparse`` has normalisers that give most keys the weight zero.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import LEAST_HEADS, Role, always, normaliser, primitive
from nas.genome.primitives.domains import Flag
from nas.genome.primitives.signs import rectified
from nas.genome.primitives.tensors import Mask, Scores, count_visible, hide


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
        # The number of queries is that of x: there may be more keys than queries.
        shape = (*operand.shape[:2], x.shape[1], operand.shape[2])
        if mask is None:
            return operand.new_full(shape, 1.0 / shape[-1])
        visible = mask.expand(shape).to(operand.dtype)
        return visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)
