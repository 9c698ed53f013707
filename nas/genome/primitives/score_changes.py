"""Primitives that change scores or weights, also across heads, operations or nearby keys."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive, score_change
from nas.genome.primitives.domains import Integer, Real
from nas.genome.primitives.signs import common_sign, keeps_zero
from nas.genome.primitives.tensors import Key, Mask, Scores, hide


@score_change(
    "temperature",
    "τ·{scores}",
    "Lin et al. 2018 (Learning When to Concentrate or Divert Attention); per head",
)
class Temperature(nn.Module):
    """Scores times a learned factor of each head, initially 1; excluded keys stay excluded."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(heads))

    def forward(self, scores: Scores) -> Scores:
        excluded = scores == -torch.inf
        # Zero before the product: the factor's gradient would be 0 * inf, which is NaN.
        finite = scores.masked_fill(excluded, 0.0)
        scaled = finite * self.factor.to(scores.dtype).view(-1, 1, 1)
        return scaled.masked_fill(excluded, -torch.inf)


@score_change(
    "softcap",
    "softcap_{cap}({scores})",
    "Bello et al. 2016, eq. 16; Gemma 2, section 2",
    parameters={"cap": Real(default=50.0, low=1e-3, high=1e6)},
    sign=common_sign,
)
class Softcap(nn.Module):
    """Scores limited to the interval (-c, c): c tanh(scores / c); excluded keys stay excluded."""

    def __init__(self, *, cap: float = 50.0) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, scores: Scores) -> Scores:
        bounded = self.cap * torch.tanh(scores / self.cap)
        return bounded.masked_fill(scores == -torch.inf, -torch.inf)


@primitive(
    "key_bias",
    "scores: scores[h], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,  # policies require a score between tokens and weights
    notation="({scores} + u·{key}ᵀ/√d)",
    source="Dai et al. 2019 (Transformer-XL), section 3.3, term (c)",
)
class KeyBias(nn.Module):
    """Scores plus a learned linear function of the key: out_ij = scores_ij + u_h·k_j / sqrt(rank).

    u_h is initially zero.
    """

    def __init__(self, heads: int, width: int, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5
        self.direction = nn.Parameter(torch.zeros(heads, width))

    def bias(self, key: Key) -> Float[Tensor, "b h k 1"]:
        """Return u_h·k_j / sqrt(rank)."""
        return key @ (self.direction.to(key.dtype) * self.scale)[:, :, None]

    def forward(self, scores: Scores, key: Key) -> Scores:
        return scores + self.bias(key).to(scores.dtype).mT


def linear_bias(
    slopes: Float[Tensor, "h"],
    query: Float[Tensor, "b h q _"],
    key: Float[Tensor, "b g k _"],
    start: int | Tensor = 0,
) -> Float[Tensor, "h q k"]:
    """Return -slope |i - j| for each head, query i and key j, in float32 or float64.

    ``start`` is the position of the first query relative to the first key. Of ``query`` and ``key``
    only the lengths matter.
    """
    exact = slopes.to(torch.promote_types(slopes.dtype, torch.float32))
    rows, columns = (
        torch.arange(x.shape[2], device=x.device, dtype=exact.dtype) for x in (query, key)
    )
    return -exact[:, None, None] * (rows[:, None] + start - columns[None, :]).abs()


def alibi_slopes(heads: int, like: Tensor) -> Float[Tensor, "h"]:
    """Return 2^(-8 (h + 1) / heads) for h = 0 to heads - 1, on the device of ``like``."""
    exact = torch.promote_types(like.dtype, torch.float32)
    numbers = torch.arange(1, heads + 1, device=like.device, dtype=exact)
    return 2.0 ** (numbers * (-8.0 / heads))


@score_change(
    "alibi",
    "({scores} - m|i-j|)",
    "Press et al. 2022 (ALiBi), section 3; both directions: its authors' code, symmetric",
)
class Alibi(nn.Module):
    """Scores minus a penalty proportional to the distance of query and key.

    out_ij = scores_ij - m_h |i - j|, with m_h = 2^(-8 h / H) for heads h = 1 to H
    """

    has_parameters = False

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, scores: Scores, start: int | Tensor = 0) -> Scores:
        slopes = alibi_slopes(self.heads, scores)
        return scores + linear_bias(slopes, scores, scores.mT, start).to(scores.dtype)


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
