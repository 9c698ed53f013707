"""Primitives that depend on token positions: rotary position embedding and a short convolution."""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome import key_width
from nas.genome.primitives.base import Params, Role, Sizes, always, token_map
from nas.genome.primitives.domains import Choice, Flag, Integer, Real
from nas.genome.primitives.tensors import Mask, Tokens, drop_padding


def rotate(
    features: Float[Tensor, "b h n *r w"], start: int | Tensor = 0, base: float = 10000.0
) -> Float[Tensor, "b h n *r w"]:
    """Rotate the pairs (i, i + w/2) of features by the angle t / base^(2i/w), in radians.

    t is the token's position; the first token has position ``start``. The axes ``*r`` rotate alike.
    """
    length, width = features.shape[2], features.shape[-1]
    # Angles in float32 at least: bfloat16 cannot represent all positions above 256.
    exact = torch.promote_types(features.dtype, torch.float32)
    pairs = torch.arange(width // 2, device=features.device, dtype=exact)
    position = torch.arange(length, device=features.device, dtype=exact) + start
    angle = position[:, None] * base ** (-2.0 * pairs / width)
    angle = torch.cat((-angle, angle), dim=-1).reshape(length, *(1,) * (features.dim() - 4), width)
    cos, sin = angle.cos().to(features.dtype), angle.sin().to(features.dtype)
    return features * cos + features.roll(width // 2, dims=-1) * sin


SHARE: Final = Choice(default="all", values=("all", "1/2", "1/4"))


def _plain_rope(params: Params, sizes: Sizes) -> Params:
    count = key_width(params["share"], sizes.width)
    share = next(s for s in SHARE.values if key_width(s, sizes.width) == count)
    return {"share": share, "base": 10000.0 if count == 2 else params["base"]}


@token_map(
    "rope",
    "RoPE({tokens})",
    "Su et al. 2021 (RoFormer), eq. 15; share: Black et al. 2022 (GPT-NeoX)",
    role=Role.POSITION,
    parameters={"share": SHARE, "base": Real(default=10000.0, low=1.0, high=1e9)},
    plain=_plain_rope,
)
class Rope(nn.Module):
    """Rotary position embedding: dot products depend on the difference of positions only.

    out_t = R_t x_t, with (R_i q) · (R_j k) = q · R_{j-i} k. The share ``share`` of each head's
    features, from the first on, is rotated: an even number of at least two. Pair i of r rotated
    features rotates by base^(-2i/r) radians from token to token.
    """

    has_parameters = False

    def __init__(self, width: int, *, share: str = "all", base: float = 10000.0) -> None:
        super().__init__()
        self.rotated = key_width(share, width)
        self.base = base
        if self.rotated % 2:
            raise ValueError(f"rope: the width is {width}; expected an even number")

    def forward(self, tokens: Tokens, start: int | Tensor = 0) -> Tokens:
        if self.rotated == tokens.shape[-1]:
            return rotate(tokens, start, self.base)
        first, rest = tokens[..., : self.rotated], tokens[..., self.rotated :]
        return torch.cat((rotate(first, start, self.base), rest), dim=-1)


@token_map(
    "short_conv",
    "conv_{kernel}({tokens})",
    "So et al. 2021 (Primer), section 4.2",
    role=Role.POSITION,
    parameters={
        "kernel": Integer(default=3, low=2, high=64),
        "causal": Flag(default=True),
        "init": Choice(default="random", values=("random", "identity", "residual")),
    },
    is_causal_safe=lambda params: params["causal"],
    history=lambda params: params["kernel"] - 1 if params["causal"] else None,
    is_featurewise=always,
)
class ShortConv(nn.Module):
    """Depthwise convolution over the tokens, with one kernel for each feature of each head.

    out_t = b + sum_s w_s tokens_{t-s}, with s = 0 to kernel - 1 if causal. Otherwise the kernel is
    centred on t, and an even kernel covers one token more to the right. Padding and tokens beyond
    the edges count as zeros. ``init`` is ``random``; ``identity`` for out_t = tokens_t; or
    ``residual`` for the sum of both.
    """

    needs_all_tokens = True
    reads_hidden_tokens = True

    def __init__(
        self, heads: int, width: int, *, kernel: int = 3, causal: bool = True, init: str = "random"
    ) -> None:
        super().__init__()
        self.reach = (kernel - 1, 0) if causal else ((kernel - 1) // 2, kernel // 2)
        self.conv = nn.Conv1d(heads * width, heads * width, kernel, groups=heads * width)
        if init != "random":
            with torch.no_grad():
                if init == "identity":
                    for parameter in self.conv.parameters():
                        parameter.zero_()
                self.conv.weight[:, :, self.reach[0]] += 1.0

    def forward(self, tokens: Tokens, mask: Mask = None) -> Tokens:
        padded = F.pad(drop_padding(tokens, mask), (0, 0, *self.reach))
        mixed = self.conv(padded.transpose(2, 3).flatten(1, 2))
        return mixed.unflatten(1, (tokens.shape[1], -1)).transpose(2, 3)


@token_map(
    "token_shift",
    "shift({tokens})",
    "Peng et al. 2023 (RWKV, arXiv 2305.13048), with 1 - mu for its mu",
    role=Role.POSITION,
    history=lambda params: 1,
    parameters={"init": Choice(default="identity", values=("identity", "spread"))},
    is_featurewise=always,
)
class TokenShift(nn.Module):
    """Each feature mixed with the same feature of the previous token.

    out_t = (1 - mu) tokens_t + mu tokens_{t-1}, with a learned mu for each feature of each head,
    which is initially zero. Padding and the token before the first one count as zeros.
    """

    needs_all_tokens = True
    reads_hidden_tokens = True

    def __init__(self, heads: int, width: int, *, init: str = "identity") -> None:
        super().__init__()
        start = torch.linspace(0.0, 1.0, width) if init == "spread" else torch.zeros(width)
        self.mix = nn.Parameter(start.repeat(heads, 1, 1))

    def forward(self, tokens: Tokens, mask: Mask = None) -> Tokens:
        now = drop_padding(tokens, mask)
        before = F.pad(now, (0, 0, 1, 0))[:, :, :-1]
        return torch.lerp(now, before, self.mix.to(now.dtype).expand_as(now))
