"""Controls: what a mechanism must beat before its design has explained anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.mechanisms.base import graph, named
from nas.mechanisms.evolving import PROJECTIONS

if TYPE_CHECKING:
    from nas.genome import Genome


@named(paper="control")
def uniform() -> Genome:
    """The mean of all values: no attention.

        out_i = ((1 / n_i) sum_j V_j) W_O,   j over the n_i tokens that i sees

    W_V, W_O: d x d. Without a mask every token gets the same; with a causal one the
    mean of its past. The scores, of the input with itself, are computed and
    ignored, so that costs are those of champion_control: what they buy is what a
    mechanism with the same two projections gains over this one.
    """
    return graph(
        ("scaled_dot_product", "kk"), ("uniform", [0]), ("weighted_sum", [1, "v"]), **PROJECTIONS
    )


@named(paper="control")
def champion_control() -> Genome:
    """Standard attention with the champion's two projections.

        out = softmax(V K^T / sqrt(d_h)) V W_O,   K = X cut into heads

    The champion of Evolving Attention with softmax for the sigmoid and without GELU
    and LayerNorm on the values. The paper compares the champion with standard
    attention of four projections alone; this says what the two that it lacks are
    worth.
    """
    return graph(
        ("scaled_dot_product", "vk"), ("softmax", [0]), ("weighted_sum", [1, "v"]), **PROJECTIONS
    )
