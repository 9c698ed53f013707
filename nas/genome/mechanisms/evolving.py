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

    V = X W_V is cut into H heads of width d_k = d_h. The key has no projection
    (proj_config of section 3.1), so K is X itself, cut into heads. W_V, W_O: d x d.

    Decisions. The sigmoid is as published, without a bias of -log n: rows of
    Weights sum to about n / 2, and the output grows with the length. The parameter
    length_bias of sigmoid adds the bias. LayerNorm is over the d_h features of a
    head and shared by all heads, as in the authors' code. The paper calls the
    champion query-less; a query without projection would be the same tensor as K.
    The control champion_control is standard attention with the same projections
    W_V and W_O, and without GELU and LayerNorm.
    """
    g = Graph()
    weights = g.add("sigmoid", g.add("scaled_dot_product", "v", "k"))
    values = g.add("layer_norm", g.add("gelu", "v"))
    return g.genome(g.add("weighted_sum", weights, values), **PROJECTIONS)


@named(paper="control")
def uniform() -> Genome:
    """The mean of all values: no attention.

        out_i = ((1 / n_i) sum_j V_j) W_O,   j over the n_i tokens that i sees

    W_V, W_O: d x d. Without a mask every token gets the same mean, with a causal
    mask the mean of its past. No scores are computed.
    """
    g = Graph()
    weights = g.add("uniform", g.add("scaled_dot_product", "k", "k"))
    return g.genome(g.add("weighted_sum", weights, "v"), **PROJECTIONS)


@named(paper="control")
def champion_control() -> Genome:
    """Standard attention with the champion's two projections.

        out = softmax(V K^T / sqrt(d_h)) V W_O,   K = X cut into heads

    The champion of Evolving Attention with softmax in place of the sigmoid, and
    without GELU and LayerNorm on the values. The paper compares the champion only
    with standard attention with four projections; this control shows the effect of
    omitting two of them.
    """
    g = Graph()
    return g.genome(g.attend(g.add("scaled_dot_product", "v", "k"), "v"), **PROJECTIONS)
