"""Sigmoid of the visible scores."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive
from nas.primitives.domains import Flag
from nas.primitives.masks import count_visible, hide


@primitive(
    "sigmoid",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="sigmoid({scores})",
    source="Evolving Attention, section 2.1; length bias: Ramapuram et al. 2024, section 3",
    parameters={"length_bias": Flag(default=False)},
)
class Sigmoid(nn.Module):
    """A weight of its own for every visible key; rows do not sum to 1.

    weights_ij = sigmoid(scores_ij + b), b = 0 as published: row sums then grow with the number
    n of visible keys. With ``length_bias`` b = -log n, which keeps them near 1.
    """

    def __init__(self, *, length_bias: bool = False) -> None:
        super().__init__()
        self.length_bias = length_bias

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        hidden = hide(scores, mask)
        if self.length_bias:
            hidden = hidden - count_visible(scores, mask).log()
        return torch.sigmoid(hidden).to(scores.dtype)
