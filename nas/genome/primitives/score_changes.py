"""Primitives that change scores: temperature, soft cap, a bias for each key, and ALiBi."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive, score_change
from nas.genome.primitives.domains import Real
from nas.genome.primitives.shapes import Key, Scores
from nas.genome.primitives.signs import common_sign


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

    def forward(self, scores: Scores, key: Key) -> Scores:
        bias = key @ (self.direction.to(key.dtype) * self.scale)[:, :, None]
        return scores + bias.to(scores.dtype).transpose(-2, -1)


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
