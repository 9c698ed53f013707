"""A learned linear map of each head's features."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    return sizes.heads * sizes.tokens * sizes.width**2


@primitive(
    "linear",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="Linear({tokens})",
    source="Evolving Attention, section 2.1",
    macs=_macs,
)
class Linear(nn.Module):
    """An affine map of the features, shared by the heads.

    out = W x + b, W of shape w x w
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n w"]:
        return self.linear(tokens)
