"""The control: equal weights for all visible keys."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nas.genome import LABELS
from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.domains import Choice
from nas.genome.primitives.factors import Weights, non_negative
from nas.genome.primitives.shapes import Mask, Scores


@primitive(
    "uniform",
    "scores: scores[h] -> weights[h]",
    "key: tokens[h,w] -> weights[h]",
    role=Role.NORMALIZE,
    notation="uniform",
    source="control: a mean over the keys",
    parameters={"heads": Choice(default="one", values=tuple(reversed(LABELS["q_heads"])))},
    derived=("heads",),
    weights=lambda params: Weights.MEAN,
    sign=non_negative,
    is_featurewise=True,
    unread=lambda params: ("scores", "key"),
    least_heads=lambda params: params["heads"],
)
class Uniform(nn.Module):
    """Equal weights for all visible keys: the mean of their values.

    weights_ij = 1 / n, n the number of keys that row i sees; only the length of the operand
    matters. The normal form reads tokens, so that no scores are computed.

    Args:
        heads: smallest head count of the weights; the normal form sets that of the removed scores.
    """

    def __init__(self, *, heads: str = "one") -> None:
        super().__init__()
        self.label = heads

    def forward(
        self, operand: Float[Tensor, "b h k _"], x: Float[Tensor, "b q d"], mask: Mask = None
    ) -> Scores:
        # Scores have as many rows as keys; tokens of the keys may be more than the queries.
        shape = (*operand.shape[:2], x.shape[1], operand.shape[2])
        if mask is None:
            return operand.new_full(shape, 1.0 / shape[-1])
        visible = mask.expand(shape).to(operand.dtype)
        return visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)
