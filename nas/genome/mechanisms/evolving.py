"""Evolving Attention: the champion of the published search (Hamza 2025), and two controls.

A control is a baseline that shows the effect of a design.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nas.genome import Genome
from nas.genome.mechanisms.base import Graph, named

# The champion projects only values and output.
PROJECTIONS: Final[Mapping[str, Any]] = {"has_wq": False, "has_wk": False}


@named(paper="Evolving Attention")
def champion_2025() -> Genome:
    """The published champion, query-less.

        Weights = sigmoid(V K^T / sqrt(d_k))                             (eq. 1)
        Transformed = LayerNorm(gelu(V))                                 (eq. 2)
        Output = Weights Transformed                                     (eq. 3)

    V = X W_V and K = X, both cut into heads; W_V, W_O: d x d. Decisions. The
    sigmoid has no bias of -log n, so rows of Weights sum to about n / 2;
    length_bias adds it. LayerNorm is over a head's features, shared by all heads.
    """
    g = Graph()
    weights = g.add("sigmoid", g.add("scaled_dot_product", "v", "k"))
    values = g.add("layer_norm", g.add("gelu", "v"))
    return g.genome(g.add("weighted_sum", weights, values), **PROJECTIONS)


@named(paper="control")
def uniform() -> Genome:
    """The mean of all values: no attention.

    out_i = ((1 / n_i) sum_j V_j) W_O,   j over the n_i tokens that i sees
    """
    g = Graph()
    weights = g.add("uniform", g.add("scaled_dot_product", "k", "k"))
    return g.genome(g.add("weighted_sum", weights, "v"), **PROJECTIONS)


@named(paper="control")
def champion_control() -> Genome:
    """Standard attention with the champion's two projections.

        out = softmax(V K^T / sqrt(d_h)) V W_O,   K = X cut into heads

    It differs from champion_2025 in the sigmoid, GELU and LayerNorm only.
    """
    g = Graph()
    return g.genome(g.attend(g.add("scaled_dot_product", "v", "k"), "v"), **PROJECTIONS)
