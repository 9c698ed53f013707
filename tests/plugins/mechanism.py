"""A mechanism: standard attention with an output gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.genome.mechanisms.base import Graph, named

if TYPE_CHECKING:
    from nas.genome import Genome


@named(paper="an example: where it comes from")
def gated_mha() -> Genome:
    """Standard attention with an output gate computed from the block's input.

        out_i = (sum_j a_ij v_j) * sigmoid(G x_i) W_O,   a as in mha

    G: one gate for each head and feature. Initial gates are near one half.
    """
    g = Graph()
    out = g.attend(g.add("scaled_dot_product", "q", "k"), "v")
    return g.genome(g.add("output_gate", out))
