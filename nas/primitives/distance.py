"""Scores from Euclidean distances."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    return sizes.heads * sizes.pairs * sizes.width


@primitive(
    "distance",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="-|{query} - {key}|²/2√d",
    source="Chen et al. 2021 (Skyformer), section 4.1: the logarithm of its Gaussian kernel",
    macs=_macs,
)
class Distance(nn.Module):
    """Negative squared distances of queries and keys: the logarithm of a Gaussian kernel.

    scores_ij = -|q_i - k_j|^2 / (2 sqrt(r)) = (q_i·k_j - |q_i|^2 / 2 - |k_j|^2 / 2) / sqrt(r),
    r the width that scaled dot products are scaled by
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        products = query @ key.transpose(-2, -1)
        lengths = self._half_square(query) + self._half_square(key).transpose(-2, -1)
        return ((products - lengths) * self.scale).to(products.dtype)

    def _half_square(self, tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n 1"]:
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        return exact.square().sum(dim=-1, keepdim=True) / 2.0
