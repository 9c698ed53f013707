"""A soft bound on the scores."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.domains import Real


@primitive(
    "softcap",
    "scores: scores[h] -> scores[h]",
    role=Role.ADJUST,
    notation="softcap_{cap}({scores})",
    source="Bello et al. 2016, eq. 16; Gemma 2, section 2",
    parameters={"cap": Real(default=50.0, low=1e-3, high=1e6)},
)
class Softcap(nn.Module):
    """Scores pressed into an interval, nearly unchanged where they are small.

    out = c tanh(scores / c); an excluded key stays excluded
    """

    def __init__(self, *, cap: float = 50.0) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, scores: Float[Tensor, "b h q k"]) -> Float[Tensor, "b h q k"]:
        bounded = self.cap * torch.tanh(scores / self.cap)
        return bounded.masked_fill(scores == -torch.inf, -torch.inf)
