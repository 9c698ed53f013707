"""Cosine scores."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    return sizes.heads * sizes.pairs * sizes.width


def unit_length(tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n w"]:
    """Tokens of length 1; near zero shorter, so that gradients stay bounded."""
    exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    length = (exact.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt()
    return (exact / length).to(tokens.dtype)


@primitive(
    "cosine",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="τ·cos({query}, {key})",
    source="Henry et al. 2020 (QKNorm), eq. 4; per head: Liu et al. 2022 (Swin V2), eq. 2",
    macs=_macs,
)
class Cosine(nn.Module):
    """Cosines of the angles between queries and keys, times a learned factor for each head.

    scores_ij = g_h (q_i · k_j) / (|q_i| |k_j|), g = sqrt(w) at the start: scores of independent
    features then vary as much as scaled dot products do.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads,), width**0.5))

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        directions = unit_length(query) * self.factor.to(query.dtype).view(-1, 1, 1)
        return directions @ unit_length(key).transpose(-2, -1)
