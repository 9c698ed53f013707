"""A mechanism: standard attention with a gate on what comes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.genome.mechanisms.base import graph, named

if TYPE_CHECKING:
    from nas.genome import Genome


@named(paper="an example: where it comes from")
def gated_attention() -> Genome:
    """Standard attention whose result is gated by the block's input.

        out_i = (sum_j a_ij v_j) * sigmoid(G x_i) W_O,   a as in mha

    G: one gate a head and feature. Start: as drawn; gates begin near one half.
    """
    return graph(
        ("scaled_dot_product", "qk"),
        ("softmax", [0]),
        ("weighted_sum", [1, "v"]),
        ("output_gate", [2]),
    )
