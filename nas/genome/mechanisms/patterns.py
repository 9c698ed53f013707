"""Patterns and Messages: products of a head's projection matrices as single matrices.

By the blog post "Refactoring the Attention Equations: Patterns and Messages" (2025). The index i
counts heads. The products are parameters of their own, which can have a higher rank; `nas.merge`
computes the products of a trained block's matrices.
"""

from __future__ import annotations

from typing import Final

from nas.genome import Genome
from nas.genome.mechanisms.base import named, scored

PAPER: Final = "Patterns and Messages"


@named(PAPER)
def patterns() -> Genome:
    """Queries and keys merged: every head compares patterns with whole tokens.

        W^P_i = W^Q_i (W^K_i)^T,   P_i = X W^P_i                         (section 4)
        head_i = softmax(P_i X^T / sqrt(d_h)) V_i

    W^P_i: d x d, learned as one matrix of any rank. Values and output as in mha.
    Decisions. Scores are divided by sqrt(d_h), as with two factors.
    """
    return scored(has_wk=False, raw="shared")


@named(PAPER)
def messages() -> Genome:
    """Values and outputs merged: heads send messages that are summed.

        W^M_i = W^V_i W^O_i,   M_i = X W^M_i                             (section 3)
        MultiHead(X) = sum_i softmax(Q_i K_i^T / sqrt(d_h)) M_i

    W^M_i: d x d, learned as one matrix. Queries and keys as in mha. There is no W_O
    and, as in the blog, no bias.
    """
    return scored(has_wo=False, merge="sum")


@named(PAPER)
def patterns_and_messages() -> Genome:
    """Patterns and messages together: two matrices for each head.

        P_i = X W^P_i,   M_i = X W^M_i                                   (section 5)
        MultiHead(X) = sum_i softmax(P_i X^T / sqrt(d_h)) M_i

    W^P_i, W^M_i: d x d.
    """
    return scored(has_wk=False, has_wo=False, raw="shared", merge="sum")
