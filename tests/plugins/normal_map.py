"""A primitive with an operation that torch does not tag as pointwise."""

from __future__ import annotations

import torch
from torch import nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.tensors import Tokens


@primitive(
    "normal_map",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="Φ({tokens})",
    source="an example: where it comes from, with its equation",
    elementwise=("aten::special_ndtr",),
)
class NormalMap(nn.Module):
    """The distribution function Φ of the normal distribution, of each feature."""

    def forward(self, tokens: Tokens) -> Tokens:
        return torch.special.ndtr(tokens)
