"""Softmax that may also attend to nothing."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.primitives.base import Role, primitive
from nas.primitives.masks import hide


@primitive(
    "softmax_one",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="softmax₁({scores})",
    source="Miller 2023, 'Attention Is Off By One'",
)
class SoftmaxOne(nn.Module):
    """Softmax over the visible keys and one silent key whose score and value are zero.

    weights_ij = exp(scores_ij) / (1 + sum_k exp(scores_ik)); rows sum to less than 1
    """

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        return torch.softmax(F.pad(hide(scores, mask), (1, 0)), dim=-1)[..., 1:]
