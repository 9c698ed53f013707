"""A short depthwise convolution over the tokens."""

from __future__ import annotations

from torch import nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Flag, Integer
from nas.genome.primitives.masks import drop_padding
from nas.genome.primitives.shapes import Mask, Tokens


# POSITION, not TRANSFORM: the result depends on the neighbours of a token.
@primitive(
    "short_conv",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="conv_{kernel}({tokens})",
    source="So et al. 2021 (Primer), section 4.2",
    parameters={"kernel": Integer(default=3, low=2, high=64), "causal": Flag(default=True)},
    is_causal_safe=lambda params: params["causal"],
    reach=lambda params: params["kernel"] - 1,
    macs=lambda sizes, params: sizes.heads * sizes.tokens * sizes.width * params["kernel"],
    is_featurewise=True,
)
class ShortConv(nn.Module):
    """Every feature of every head is mixed with the same feature of a few neighbours.

    out_t = b + sum_s w_s tokens_{t-s}, s = 0 .. kernel-1 if causal, else centred on t (an even
    kernel reaches one further to the right); zeros beyond the edges and at padding.
    """

    needs_all_tokens = True

    def __init__(self, heads: int, width: int, *, kernel: int = 3, causal: bool = True) -> None:
        super().__init__()
        self.reach = (kernel - 1, 0) if causal else ((kernel - 1) // 2, kernel // 2)
        self.conv = nn.Conv1d(heads * width, heads * width, kernel, groups=heads * width)

    def forward(self, tokens: Tokens, mask: Mask = None) -> Tokens:
        # Heads side by side as channels: each has a kernel of its own.
        columns = drop_padding(tokens, mask).transpose(2, 3).flatten(1, 2)
        mixed = self.conv(F.pad(columns, self.reach))
        return mixed.unflatten(1, (tokens.shape[1], -1)).transpose(2, 3)
