"""A learned sharpness of the scores."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive


@primitive(
    "temperature",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="τ·{scores}",
    source="Lin et al. 2018 (Learning When to Concentrate or Divert Attention); per head",
)
class Temperature(nn.Module):
    """A learned factor for each head, 1 at the start.

    out_h = t_h scores_h; an excluded key stays excluded, whatever the factor's sign
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(heads))

    def forward(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        excluded = scores == -torch.inf
        # Zero before the product: the factor's gradient would be 0 * inf, which is NaN.
        finite = scores.masked_fill(excluded, 0.0)
        scaled = finite * self.factor.to(scores.dtype).view(-1, 1, 1)
        return scaled.masked_fill(excluded, -torch.inf)
