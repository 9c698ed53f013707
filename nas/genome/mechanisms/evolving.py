"""Evolving Attention: the champion of the published search.

Hamza 2025, section 3.1. Its control, which the paper does not report, is in `controls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nas.genome import Genome
from nas.genome.mechanisms.base import graph, named

# The champion projects values and output only.
PROJECTIONS: Final[Mapping[str, Any]] = {"has_wq": False, "has_wk": False}


@named(paper="Evolving Attention")
def champion_2025() -> Genome:
    """The published champion, query-less.

        Weights = sigmoid(V K^T / sqrt(d_k))                             (eq. 1)
        Transformed = LayerNorm(gelu(V))                                 (eq. 2)
        Output = Weights Transformed                                     (eq. 3)

    V = X W_V, cut into H heads of d_k = d_h; K is X itself, cut likewise, since key
    and query have no projection (proj_config of section 3.1); W_V, W_O: d x d.

    Readings. The sigmoid is as published, without a bias of -log n: rows of Weights
    sum to about n / 2 and the output grows with the length (sigmoid's length_bias
    mends that). LayerNorm is over a head's d_h features, one for all heads, as in
    the authors' code. "Query-less" is a name: k and q would be the same tensor
    here. Standard attention over the same two projections is champion_control,
    which the paper does not report; it is cheaper by GELU and norm.
    """
    return graph(
        ("scaled_dot_product", "vk"),
        ("sigmoid", [0]),
        ("gelu", "v"),
        ("layer_norm", [2]),
        ("weighted_sum", [1, 3]),
        **PROJECTIONS,
    )
