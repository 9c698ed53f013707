"""Primitives that depend on token positions: rotary position embedding and a short convolution."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Flag, Integer
from nas.genome.primitives.factors import zero_of_first
from nas.genome.primitives.masks import drop_padding
from nas.genome.primitives.shapes import Mask, Tokens


def rotate(
    features: Float[Tensor, "b h n *r w"], start: int | Tensor = 0
) -> Float[Tensor, "b h n *r w"]:
    """Rotate pairs of features by angles proportional to the token's position.

    The first token has position ``start``. Features i and i + w/2 form pair i. The angle of pair i
    at position t is t / 10000^(2i/w), in radians. All features on the axes ``*r`` rotate by the
    angle of their token.

    Source: Su et al. 2021 (RoFormer), eq. 15 and 34.
    """
    length, width = features.shape[2], features.shape[-1]
    # Angles in float32 at least: bfloat16 cannot represent all positions above 256.
    exact = torch.promote_types(features.dtype, torch.float32)
    pairs = torch.arange(width // 2, device=features.device, dtype=exact)
    position = torch.arange(length, device=features.device, dtype=exact) + start
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
    """Rotary position embedding: dot products depend on the difference of positions only.

    out_t = R_t x_t, with rotations R_t such that (R_i q) · (R_j k) = q · R_{j-i} k
    """

    has_parameters = False

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"rope: the width is {width}; expected an even number")

    def forward(self, tokens: Tokens, start: int | Tensor = 0) -> Tokens:
        return rotate(tokens, start)


@primitive(
    "short_conv",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,  # the result depends on the neighbours of a token
    notation="conv_{kernel}({tokens})",
    source="So et al. 2021 (Primer), section 4.2",
    parameters={"kernel": Integer(default=3, low=2, high=64), "causal": Flag(default=True)},
    is_causal_safe=lambda params: params["causal"],
    reach=lambda params: params["kernel"] - 1,
    macs=lambda sizes, params: sizes.heads * sizes.tokens * sizes.width * params["kernel"],
    is_featurewise=True,
)
class ShortConv(nn.Module):
    """Depthwise convolution over the tokens, with one kernel for each feature of each head.

    out_t = b + sum_s w_s tokens_{t-s}, with s = 0 to kernel - 1 if causal. Otherwise the kernel is
    centred on t, and an even kernel covers one token more to the right. Padding and tokens beyond
    the edges count as zeros.
    """

    needs_all_tokens = True

    def __init__(self, heads: int, width: int, *, kernel: int = 3, causal: bool = True) -> None:
        super().__init__()
        self.reach = (kernel - 1, 0) if causal else ((kernel - 1) // 2, kernel // 2)
        self.conv = nn.Conv1d(heads * width, heads * width, kernel, groups=heads * width)

    def forward(self, tokens: Tokens, mask: Mask = None) -> Tokens:
        columns = drop_padding(tokens, mask).transpose(2, 3).flatten(1, 2)
        mixed = self.conv(F.pad(columns, self.reach))
        return mixed.unflatten(1, (tokens.shape[1], -1)).transpose(2, 3)
