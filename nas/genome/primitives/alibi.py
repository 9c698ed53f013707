"""Attention with linear biases: scores decrease with the distance of query and key."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.factors import ScoreChange, non_positive_like_first
from nas.genome.primitives.shapes import Scores


def linear_bias(
    slopes: Float[Tensor, "h"],
    query: Float[Tensor, "b h q _"],
    key: Float[Tensor, "b g k _"],
    start: int = 0,
) -> Float[Tensor, "h q k"]:
    """-slope |i - j| for each head, query and key; the first query stands at ``start``.

    In float32 at least: bfloat16 cannot tell positions above 256 apart.
    """
    exact = slopes.to(torch.promote_types(slopes.dtype, torch.float32))
    rows, columns = (
        torch.arange(x.shape[2], device=x.device, dtype=exact.dtype) for x in (query, key)
    )
    return -exact[:, None, None] * (rows[:, None] + start - columns[None, :]).abs()


def alibi_slopes(heads: int, like: Tensor) -> Float[Tensor, "h"]:
    """2^(-8 (h + 1) / H) for heads h = 0 to H - 1, on the device of ``like``."""
    exact = torch.promote_types(like.dtype, torch.float32)
    numbers = torch.arange(1, heads + 1, device=like.device, dtype=exact)
    return 2.0 ** (numbers * (-8.0 / heads))


@primitive(
    "alibi",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="({scores} - m|i-j|)",
    source="Press et al. 2022 (ALiBi), section 3; both directions: its authors' code, symmetric",
    score_change=ScoreChange(slopes=alibi_slopes),
    sign=non_positive_like_first,
)
class Alibi(nn.Module):
    """Adds a penalty that grows with the distance of query and key, at a rate of each head.

    out_ij = scores_ij - m_h |i - j|, m_h = 2^(-8 h / H) for heads h = 1 to H; the rates are fixed,
    since learned ones did not help its authors (section 3)
    """

    has_parameters = False

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, scores: Scores, start: int = 0) -> Scores:
        bias = linear_bias(
            alibi_slopes(self.heads, scores), scores, scores.transpose(-2, -1), start
        )
        return scores + bias.to(scores.dtype)
