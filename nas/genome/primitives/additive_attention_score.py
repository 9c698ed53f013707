"""Additive scores."""

from __future__ import annotations

from torch import Tensor, nn

from nas.genome.primitives.base import Params, Role, Sizes, primitive
from nas.genome.primitives.hidden_units import sum_units
from nas.genome.primitives.shapes import Key, Query, Scores


def _macs(sizes: Sizes, params: Params) -> int:
    w = sizes.width
    return sizes.heads * (sizes.both * w**2 + sizes.pairs * w)


@primitive(
    "additive_attention_score",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="vᵀtanh(W₁{query} + W₂{key})",
    source="Bahdanau et al. 2015, section A.1.2; Evolving Attention, section 2.1",
    macs=_macs,
    passes=lambda sizes, params: 2 * sizes.width,
)
class AdditiveAttentionScore(nn.Module):
    """A hidden tanh layer over the query and the key, as wide as they are, without biases.

    scores_ij = v · tanh(W1 q_i + W2 k_j), shared by the heads

    MACs are those of the mechanism: W1 and W2, and h n² w for v, whatever form the sum has.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_map = nn.Linear(width, width, bias=False)
        self.key_map = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, 1, bias=False)

    def forward(self, query: Query, key: Key) -> Scores:
        return sum_units(*self.units(query, key), "tanh")

    def units(self, query: Query, key: Key) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The two halves of the hidden layer, and what sums its units."""
        weight = self.out.weight.squeeze(0)
        return self.query_map(query), self.key_map(key), weight, weight.new_zeros(())
