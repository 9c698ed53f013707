"""Rotary position embedding: a shared function and a primitive."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.factors import zero_of_first
from nas.genome.primitives.shapes import Tokens


def rotate(features: Float[Tensor, "b h n *r w"], start: int = 0) -> Float[Tensor, "b h n *r w"]:
    """Turn pairs of features by angles that grow with the token's position, the first at ``start``.

    Pairs are (i, i + w/2), the half-split layout; the angle of pair i at position t is
    t / 10000^(2i/w). Axes between the tokens and the features share the token's angle.

    Source: Su et al. 2021 (RoFormer), eq. 15 and 34.
    """
    length, width = features.shape[2], features.shape[-1]
    # Angles in float32 at least: bfloat16 cannot tell positions above 256 apart.
    exact = torch.promote_types(features.dtype, torch.float32)
    pairs = torch.arange(width // 2, device=features.device, dtype=exact)
    position = torch.arange(start, start + length, device=features.device, dtype=exact)
    angle = position[:, None] * 10000.0 ** (-2.0 * pairs / width)
    angle = angle.reshape(length, *(1,) * (features.dim() - 4), width // 2)
    cos, sin = angle.cos().to(features.dtype), angle.sin().to(features.dtype)
    first, second = features[..., : width // 2], features[..., width // 2 :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@primitive(
    "rope",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="RoPE({tokens})",
    source="Su et al. 2021 (RoFormer), eq. 15",
    homogeneous=("tokens",),
    is_additive=True,
    sign=zero_of_first,
)
class Rope(nn.Module):
    """Rotary position embedding: dot products then depend on positions by difference alone.

    out_t = R_t x_t, R_t a rotation with (R_i q) · (R_j k) = q · R_{j-i} k
    """

    has_parameters = False

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"rope: the width is {width}; expected an even number")

    def forward(self, tokens: Tokens, start: int = 0) -> Tokens:
        return rotate(tokens, start)
