"""Tokens that gate themselves."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    return sizes.heads * sizes.tokens * sizes.width**2


@primitive(
    "gated_value",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.GATE,
    notation="gate({tokens})",
    source="Evolving Attention, section 2.1",
    macs=_macs,
)
class GatedValue(nn.Module):
    """Features scaled by a gate of their own token, shared by the heads.

    out = v * sigmoid(W v + b)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)

    def forward(self, tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n w"]:
        return tokens * torch.sigmoid(self.gate(tokens))
