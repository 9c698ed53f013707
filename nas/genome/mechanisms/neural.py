"""Neural Attention: a network scores each pair of query and key.

DiGiugno and Mahmood 2025. The paper and its published code differ; this module has both.
"""

from __future__ import annotations

from typing import Final

from nas.genome import Genome
from nas.genome.mechanisms.base import named, scored

PAPER: Final = "Neural Attention"


@named(PAPER)
def neural_attention() -> Genome:
    """A shared network scores each pair; first layer only.

        h_ij = gelu(W_h [q_i; k_j] + b_h)                                (eq. 3)
        score_ij = W_a h_ij + b_a                                        (eqs. 4, 8)
        NeuralAttention(Q, K, V) = softmax(score) V                      (eq. 9)

    q_i, k_j: d_h, projected as in mha; W_h: m x 2 d_h, b_h: m, W_a: 1 x m, with m =
    16 hidden units, one network for all heads. Computed as W_h [q; k] = W_q q + W_k
    k: no tensor of all pairs and features exists (eq. 7 has one). The other layers
    of the backbone keep standard attention (section 3.2).

    Readings. Eq. 8 gives each pair of positions weights of its own, W_h[i,j]; the
    paper's parameter counts (table 1) and sequences of other lengths need shared
    ones. Biases are those of eqs. 3 and 4; eq. 8 omits them. q and k are not
    reduced to d' first (eqs. 5 and 6; reduced_dim does). The scale 1 / sqrt(d) of
    eq. 9 is off, as in the authors' code (scale: true puts it back). The paper does
    not name sigma: gelu. b_a does nothing under softmax.
    """
    return scored("neural_attention", placement="first")


@named(PAPER)
def neural_attention_authors() -> Genome:
    """The authors' code: two hidden ReLU layers score each pair; first layer only.

        u_ij = relu(W_1 [q_i; k_j] + b_1)
        w_ij = relu(W_2 u_ij + b_2)
        score_ij = W_3 w_ij + b_3

    W_1: d' x 2 d', W_2: floor(d' / 2) x d', W_3: 1 x floor(d' / 2), one network for
    all heads. d' = d_h; with reduced_dim two further maps d_h x d', with biases,
    reduce q and k before (eqs. 5 and 6). Softmax over j and the rest as in mha,
    without a scale.

    Readings. Shapes are those of the code behind the paper's parameter counts,
    which has one hidden layer more than eq. 3 and no scale where eq. 9 has one. Its
    start is not kept: at d' = 2 its score is a constant for 40 % of all seeds, and
    never trains; here the first unit of each layer starts alive.
    """
    return scored("neural_attention_authors", placement="first")
