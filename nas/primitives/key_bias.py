"""A bias of each key on its scores."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    return sizes.heads * sizes.tokens * sizes.width


@primitive(
    "key_bias",
    "scores: scores[h], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,  # tokens enter here: a path from them to weights passes a score
    notation="({scores} + u·{key}ᵀ/√d)",
    source="Dai et al. 2019 (Transformer-XL), section 3.3, term (c)",
    macs=_macs,
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

    def forward(
        self, scores: Float[Tensor, "b h q k"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        return scores + self.of(key).to(scores.dtype).transpose(-2, -1)

    def of(self, key: Float[Tensor, "b h k w"]) -> Float[Tensor, "b h k 1"]:
        """What each key adds."""
        return key @ (self.direction.to(key.dtype) * self.scale)[:, :, None]

    def shifted(self, query: Float[Tensor, "b h q w"]) -> Float[Tensor, "b h q w"]:
        """Queries whose products with the keys hold what these add."""
        return query + (self.direction.to(query.dtype) * self.scale)[:, None]
