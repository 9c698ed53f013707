"""Patterns and Messages: the projections of a head, multiplied.

The blog post "Refactoring the Attention Equations: Patterns and Messages" (2025). It numbers
sections, not equations; i counts heads in its readings. `nas.merge` computes the merged weights of
a trained block; here they are free parameters, a strictly larger space than their factors.
"""

from __future__ import annotations

from typing import Final

from nas.genome import Genome
from nas.genome.mechanisms.base import dot_product, named

PAPER: Final = "Patterns and Messages"


@named(PAPER)
def patterns() -> Genome:
    """Queries and keys merged: every head matches patterns against the whole token.

        W^P_i = W^Q_i (W^K_i)^T,   P_i = X W^P_i                         (section 4)
        head_i = softmax(P_i X^T / sqrt(d_h)) V_i

    W^P_i: d x d, learned as one matrix, so that its rank is free (that of the
    product is at most d_h); P_i: n x d. Values and output as in mha: V_i: n x d_h,
    W_O: d x d.

    Readings. sqrt(d_k) stays that of the factored head, d_h, though no key has that
    width any more; sqrt(d) would give other weights. A genome says it as a query
    without a key: has_wk: false, raw: shared, W_Q: d x H d.
    """
    return dot_product(has_wk=False, raw="shared")


@named(PAPER)
def messages() -> Genome:
    """Values and outputs merged: heads send messages that are summed.

        W^M_i = W^V_i W^O_i,   M_i = X W^M_i                             (section 3)
        MultiHead(X) = sum_i softmax(Q_i K_i^T / sqrt(d_h)) M_i

    W^M_i: d x d, learned as one matrix; M_i: n x d, what a token sends to those
    that attend to it. Queries and keys as in mha.

    Readings. There is no W_O and so no bias: the blog has none (a bias b_V of the
    values would leave as b_V W_O wherever rows sum to one). A genome says it as
    values of width d whose heads are summed: has_wo: false, merge: sum.
    """
    return dot_product(has_wo=False, merge="sum")


@named(PAPER)
def patterns_and_messages() -> Genome:
    """Both merged: two matrices a head.

        P_i = X W^P_i,   M_i = X W^M_i                                   (section 5)
        MultiHead(X) = sum_i softmax(P_i X^T / sqrt(d_k)) M_i

    W^P_i, W^M_i: d x d; P_i, M_i: n x d; d_k = d_h as in patterns.
    """
    return dot_product(has_wk=False, has_wo=False, raw="shared", merge="sum")
