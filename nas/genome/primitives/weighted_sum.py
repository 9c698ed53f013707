"""The aggregation of attention: a weighted sum of values."""

from __future__ import annotations

from torch import nn

from nas.genome.primitives.base import Role, pair_macs, primitive
from nas.genome.primitives.factors import sign_of_product
from nas.genome.primitives.shapes import Scores, Sums, Values


@primitive(
    "weighted_sum",
    "weights: weights[h], values: tokens[h,w] -> tokens[h,w]",
    role=Role.AGGREGATE,
    notation="{weights}·{values}",
    source="Vaswani et al. 2017, eq. 1",
    macs=pair_macs,
    sums_values=True,
    homogeneous=("weights", "values"),
    is_additive=True,
    is_featurewise=True,
    sign=sign_of_product,
)
class WeightedSum(nn.Module):
    """Sum of the values, weighted for each query.

    out_i = sum_j weights_ij v_j
    """

    def forward(self, weights: Scores, values: Values) -> Sums:
        return weights @ values
