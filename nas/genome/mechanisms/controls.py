"""Controls: baselines against which the effect of a design is measured."""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms.base import graph, named
from nas.genome.mechanisms.evolving import PROJECTIONS


@named(paper="control")
def uniform() -> Genome:
    """The mean of all values: no attention.

        out_i = ((1 / n_i) sum_j V_j) W_O,   j over the n_i tokens that i sees

    W_V, W_O: d x d. Without a mask every token gets the same mean, with a causal
    mask the mean of its past. Only the shape of the scores is read: they are not
    computed and cost nothing.
    """
    return graph(
        ("scaled_dot_product", "kk"), ("uniform", [0]), ("weighted_sum", [1, "v"]), **PROJECTIONS
    )


@named(paper="control")
def champion_control() -> Genome:
    """Standard attention with the champion's two projections.

        out = softmax(V K^T / sqrt(d_h)) V W_O,   K = X cut into heads

    The champion of Evolving Attention with softmax for the sigmoid and without GELU
    and LayerNorm on the values. The paper compares the champion only with standard
    attention of four projections; this control measures the effect of the two
    projections that it lacks.
    """
    return graph(
        ("scaled_dot_product", "vk"), ("softmax", [0]), ("weighted_sum", [1, "v"]), **PROJECTIONS
    )
