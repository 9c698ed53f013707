"""Bilinear scores."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    n, w = sizes.queries, sizes.width
    return sizes.heads * (n * w**2 + sizes.pairs * w)


@primitive(
    "bilinear",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{query}·W·{key}ᵀ",
    source="Luong et al. 2015 (general), section 3.1; Evolving Attention, section 2.1",
    macs=_macs,
)
class Bilinear(nn.Module):
    """Dot products of keys with a learned map of the queries, without a scale.

    scores_ij = (W q_i) · k_j, W of shape w x w, shared by the heads
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(width, width, bias=False)

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        return self.map(query) @ key.transpose(-2, -1)
