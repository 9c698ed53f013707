"""The control: equal weights, whatever the scores."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nas.primitives.base import Role, primitive


@primitive(
    "uniform",
    "scores: scores[h] -> weights[h]",
    role=Role.NORMALIZE,
    notation="uniform({scores})",
    source="control: a mean over the keys",
)
class Uniform(nn.Module):
    """The mean of the visible keys' values: a mechanism that does not attend.

    weights_ij = 1 / n, n the number of keys that row i sees; of the scores only the shape is
    read, so that a filter before it has no effect and no gradient reaches them.
    """

    def forward(
        self, scores: Float[Tensor, "b h q k"], mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "b h q k"]:
        if mask is None:
            return torch.full_like(scores, 1.0 / scores.shape[-1])
        visible = mask.expand(scores.shape).to(scores.dtype)
        count = mask.expand(scores.shape).sum(dim=-1, keepdim=True)
        return visible / count.clamp(min=1).to(scores.dtype)
