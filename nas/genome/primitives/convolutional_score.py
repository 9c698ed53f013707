"""Dot products of convolved queries and keys."""

from __future__ import annotations

from torch import nn

from nas.genome.primitives.base import Params, Role, Sizes, primitive
from nas.genome.primitives.masks import drop_padding
from nas.genome.primitives.shapes import Key, Mask, Query, Scores, Tokens


def _macs(sizes: Sizes, params: Params) -> int:
    n, w = sizes.tokens, sizes.width
    return sizes.heads * (2 * n * w * 3 + sizes.pairs * w)


@primitive(
    "convolutional_score",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="conv({query})·conv({key})ᵀ",
    source="Evolving Attention, section 2.1",
    is_causal_safe=lambda params: False,
    macs=_macs,
)
class ConvolutionalScore(nn.Module):
    """Dot products, without a scale, of queries and keys that have looked at both neighbours.

    scores_ij = conv(q)_i · conv(k)_j, conv depthwise over the tokens, kernel 3, with bias, the
    same for both operands and all heads; zeros beyond the edges and at padding. A token sees
    its right neighbour, so a causal mask does not make it causal.
    """

    needs_all_tokens = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, kernel_size=3, padding=1, groups=width)

    def forward(self, query: Query, key: Key, mask: Mask = None) -> Scores:
        mixed = self._mix(drop_padding(query, mask))
        return mixed @ self._mix(drop_padding(key, mask)).transpose(-2, -1)

    def _mix(self, tokens: Tokens) -> Tokens:
        """The convolution, with heads as further samples."""
        columns = tokens.flatten(0, 1).transpose(1, 2)
        return self.conv(columns).transpose(1, 2).reshape(tokens.shape)
