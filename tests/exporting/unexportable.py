"""A primitive that torch.export cannot trace."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive


@primitive(
    "branching",
    "tokens: tokens[h,w] -> tokens[h,w]",
    notation="if({tokens})",
    role=Role.TRANSFORM,
    source="a test",
)
class Branching(nn.Module):
    """What is computed depends on the numbers."""

    def forward(self, tokens: Float[Tensor, "b h n w"]) -> Float[Tensor, "b h n w"]:
        return tokens if tokens.sum() > 0 else -tokens
