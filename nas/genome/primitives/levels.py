"""Levels: factors of scores that depend on the distance of a key in powers of two."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Integer
from nas.genome.primitives.shapes import Scores


@primitive(
    "level_scale",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="λ_level(x)·{scores}",
    source="Log-Linear Attention 2025 (arXiv 2506.04761)",
    parameters={"levels": Integer(default=16, low=1, high=24)},
    macs=lambda sizes, params: sizes.queries * sizes.dim * sizes.heads * params["levels"],
    passes=lambda sizes, params: 3,
)
class LevelScale(nn.Module):
    """Scores times a factor of the query for each level of keys; excluded keys stay excluded.

    out_ij = l_i,level(i,j) scores_ij, l_i = softplus(a * (W_h x_i)). The level of a key is the
    number of bits of i xor j, so that level m holds 2^(m - 1) keys before the query; the last level
    holds all further keys. a: one number for each head and level, initially 1.
    """

    def __init__(self, dim: int, heads: int, *, levels: int = 16) -> None:
        super().__init__()
        self.level = nn.Linear(dim, heads * levels, bias=False)
        self.weight = nn.Parameter(torch.ones(heads, levels))

    def forward(self, scores: Scores, x: Float[Tensor, "b q d"], start: int | Tensor = 0) -> Scores:
        heads, levels = self.weight.shape
        raw = self.level(x).unflatten(-1, (heads, levels)) * self.weight.to(x.dtype)
        factors = F.softplus(raw).transpose(1, 2)
        place = torch.arange(scores.shape[2], device=scores.device)[:, None] + start
        apart = place ^ torch.arange(scores.shape[3], device=scores.device)
        bounds = 2 ** torch.arange(levels - 1, device=scores.device)
        level = (apart[..., None] >= bounds).sum(dim=-1)
        scale = factors.gather(-1, level.expand(scores.shape)).to(scores.dtype)
        excluded = scores == -torch.inf
        # Zero before the product: the factor's gradient would be 0 * inf, which is NaN.
        scaled = scores.masked_fill(excluded, 0.0) * scale
        return scaled.masked_fill(excluded, -torch.inf)
