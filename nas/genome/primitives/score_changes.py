"""Elementwise changes of scores: a temperature, a soft cap, a bias per key."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Real
from nas.genome.primitives.factors import ScoreChange, sign_of_first, zero_of_first
from nas.genome.primitives.shapes import Key, Query, Scores


@primitive(
    "temperature",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="τ·{scores}",
    source="Lin et al. 2018 (Learning When to Concentrate or Divert Attention); per head",
    score_change=ScoreChange(factor="factor"),
    sign=zero_of_first,
)
class Temperature(nn.Module):
    """A learned factor for each head, 1 at the start.

    out_h = t_h scores_h; an excluded key stays excluded, whatever the factor's sign
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(heads))

    def forward(self, scores: Scores) -> Scores:
        excluded = scores == -torch.inf
        # Zero before the product: the factor's gradient would be 0 * inf, which is NaN.
        finite = scores.masked_fill(excluded, 0.0)
        scaled = finite * self.factor.to(scores.dtype).view(-1, 1, 1)
        return scaled.masked_fill(excluded, -torch.inf)


@primitive(
    "softcap",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="softcap_{cap}({scores})",
    source="Bello et al. 2016, eq. 16; Gemma 2, section 2",
    parameters={"cap": Real(default=50.0, low=1e-3, high=1e6)},
    score_change=ScoreChange(cap="cap"),
    sign=sign_of_first,
)
class Softcap(nn.Module):
    """Scores pressed into an interval, nearly unchanged where they are small.

    out = c tanh(scores / c); an excluded key stays excluded
    """

    def __init__(self, *, cap: float = 50.0) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, scores: Scores) -> Scores:
        bounded = self.cap * torch.tanh(scores / self.cap)
        return bounded.masked_fill(scores == -torch.inf, -torch.inf)


@primitive(
    "key_bias",
    "scores: scores[h], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,  # tokens enter here: a path from them to weights passes a score
    notation="({scores} + u·{key}ᵀ/√d)",
    source="Dai et al. 2019 (Transformer-XL), section 3.3, term (c)",
    macs=lambda sizes, params: sizes.heads * sizes.tokens * sizes.width,
    score_change=ScoreChange(bias="bias", shifted="shifted"),
)
class KeyBias(nn.Module):
    """Adds what each key says for itself, whatever the query: a learned linear function per head.

    out_ij = scores_ij + u_h·k_j / sqrt(r), r the width that scaled dot products are scaled by;
    u = 0 at the start. Together with a dot product it is (q_i + u_h)·k_j / sqrt(r). Keys that are
    rotated (RoPE) are read as they are, so that what they add then depends on their place.
    """

    def __init__(self, heads: int, width: int, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5
        self.direction = nn.Parameter(torch.zeros(heads, width))

    def forward(self, scores: Scores, key: Key) -> Scores:
        return scores + self.bias(key).to(scores.dtype).transpose(-2, -1)

    def bias(self, key: Key) -> Float[Tensor, "b h k 1"]:
        """What each key adds."""
        return key @ (self.direction.to(key.dtype) * self.scale)[:, :, None]

    def shifted(self, query: Query) -> Query:
        """Queries whose products with the keys hold what these add."""
        return query + (self.direction.to(query.dtype) * self.scale)[:, None]
