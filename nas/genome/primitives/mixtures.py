"""Primitives that mix scores or weights of several heads, of two operations, or of nearby keys."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive, score_change
from nas.genome.primitives.domains import Integer
from nas.genome.primitives.masks import hide
from nas.genome.primitives.shapes import Mask, Scores
from nas.genome.primitives.signs import keeps_zero


@primitive(
    "head_difference",
    "weights: weights[h] -> weights[h]",
    role=Role.ADJUST,
    notation="Δ_heads({weights})",
    source="Ye et al. 2024 (Differential Transformer, arXiv 2410.05258)",
    plain=lambda params, sizes: None if sizes.heads == 1 else params,
    sign=keeps_zero,
)
class HeadDifference(nn.Module):
    """Differences of the weights of two neighbouring heads, as weights of both heads.

    out_2i = out_2i+1 = weights_2i - lambda_i weights_2i+1, with a learned lambda_i, initially 0.8;
    in the paper it is a function of vectors that all heads share. The weights of a last odd head
    stay.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads // 2,), 0.8))

    def forward(self, weights: Scores) -> Scores:
        count = self.factor.shape[0]
        first, second = weights[:, : 2 * count : 2], weights[:, 1 : 2 * count : 2]
        mixed = first - self.factor.to(weights.dtype).view(-1, 1, 1) * second
        return torch.cat((mixed.repeat_interleave(2, dim=1), weights[:, 2 * count :]), dim=1)


@primitive(
    "difference",
    "first: weights[h], second: weights[h] -> weights[h]",
    role=Role.ADJUST,
    notation="({first} - λ{second})",
    source="Ye et al. 2024 (Differential Transformer, arXiv 2410.05258)",
)
class Difference(nn.Module):
    """Weights minus other weights times a learned factor of each head, initially 0.8."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads,), 0.8))

    def forward(self, first: Scores, second: Scores) -> Scores:
        return first - self.factor.to(first.dtype).view(-1, 1, 1) * second


@primitive(
    "talking_heads",
    "scores: scores[h] -> scores[h]",
    "scores: weights[h] -> weights[h]",
    role=Role.ADJUST,
    notation="P·{scores}",
    source="Shazeer et al. 2020 (Talking-Heads Attention, arXiv 2003.02436)",
    sign=keeps_zero,
)
class TalkingHeads(nn.Module):
    """Scores or weights of all heads, mixed by a learned matrix P that starts at the identity.

    out_h = sum_g P_hg scores_g. A key that a filter excluded in head g counts as zero in the sums
    of other heads, and stays excluded in head g.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.eye(heads))

    def forward(self, scores: Scores) -> Scores:
        excluded = scores == -torch.inf
        finite = scores.masked_fill(excluded, 0.0).flatten(2)
        mixed = (self.mix.to(scores.dtype) @ finite).unflatten(2, scores.shape[2:])
        return mixed.masked_fill(excluded, -torch.inf)


@score_change(
    "key_conv",
    "conv_keys_{kernel}({scores})",
    "Golovneva et al. 2025 (Multi-Token Attention, arXiv 2504.00927), for one query",
    parameters={"kernel": Integer(default=3, low=2, high=64)},
)
class KeyConv(nn.Module):
    """Convolution of each query's scores over the keys, causal, with one kernel for each head.

    out_ij = sum_s w_hs scores_i,j-s, with s = 0 to kernel - 1, initially the identity. Hidden and
    excluded keys count as zero. The paper also convolves over queries, and to both sides of a key.
    """

    def __init__(self, heads: int, *, kernel: int = 3) -> None:
        super().__init__()
        self.kernel = kernel
        self.conv = nn.Conv2d(heads, heads, (1, kernel), groups=heads, bias=False)
        with torch.no_grad():
            self.conv.weight.zero_()
            self.conv.weight[..., -1] = 1.0

    # ``start`` makes a decoder call the module with consecutive keys only.
    def forward(self, scores: Scores, mask: Mask = None, start: int | Tensor = 0) -> Scores:
        hidden = hide(scores, mask)
        finite = hidden.masked_fill(hidden == -torch.inf, 0.0)
        mixed = self.conv(F.pad(finite, (self.kernel - 1, 0)))
        return mixed.masked_fill(scores == -torch.inf, -torch.inf)
