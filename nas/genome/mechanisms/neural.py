"""Scores by networks: Query-As-Network Attention (QANA) and Neural Attention.

Neural Attention is by DiGiugno and Mahmood (2025). The paper and its published code differ; this
module has both.
"""

from __future__ import annotations

from typing import Final

from nas.genome import PLACEMENTS, Genome
from nas.genome.mechanisms.base import named, scored

PAPER: Final = "Neural Attention"


@named(paper="Vermillion 2025 (QANA)")
def qana() -> Genome:
    """Each query is a small network that scores the keys.

        q_i = [s_i; U_i; V_i; b_i; c_i]                                  (sec. 3.2)
        score_ij = s_i . k_j / sqrt(D_K) + V_i gelu(U_i k_j + b_i) + c_i (sec. 3.1)

    s_i: D_K, U_i: h x D_K, V_i: 1 x h, b_i: h and c_i: 1, with h = 4 hidden units
    and D_K = d_h. A head's query has D_Q = D_K + (h D_K + 2 h + 1) numbers. Softmax
    over j and the rest as in mha.

    Decisions. The order of the slices is that of section 3.2; section 4 has
    another. The paper leaves the activation open; here it is gelu. U k is not
    divided by sqrt(D_K), as in the paper. c_i has no effect under softmax; it is
    kept so that D_Q equals the paper's. The backbone supplies positions; with
    rope: true the score rotates s, U and k (section 3.1 omits k). The "key
    property" U k = U~ k~ of section 3.3 holds only for i = j; in general scores
    depend on positions only by j - i.

    Start. Section 4 sets U, V, b and c to zero. Under softmax their gradients are
    then zero forever: those of V and c are the same for every key, and those of U
    and b have the factor V = 0. Here only V, b and c start at zero, and U is
    random (init: zero_out). The scores still start as dot products, and all
    weights can train.
    """
    return scored("qana")


@named(PAPER)
def neural_attention() -> Genome:
    """A shared network scores each pair; first layer only.

        h_ij = gelu(W_h [q_i; k_j] + b_h)                                (eq. 3)
        score_ij = W_a h_ij + b_a                                        (eqs. 4, 8)
        NeuralAttention(Q, K, V) = softmax(score) V                      (eq. 9)

    q_i, k_j: d_h, projected as in mha; W_h: m x 2 d_h, b_h: m, W_a: 1 x m, with
    m = 16 hidden units and one network for all heads. W_h [q; k] is computed as
    W_q q + W_k k, without a tensor of all pairs and features (eq. 7 has one). The
    other layers of the backbone keep standard attention (section 3.2).

    Decisions. Eq. 8 gives each pair of positions its own weights W_h[i,j]; the
    paper's parameter counts (table 1) and sequences of other lengths need shared
    weights. Biases are as in eqs. 3 and 4; eq. 8 omits them. q and k are not
    reduced to d' first (eqs. 5 and 6; reduced_dim does so). The scale 1 / sqrt(d)
    of eq. 9 is left out, as in the authors' code. The paper does not
    name the activation; here it is gelu. b_a has no effect under softmax.
    """
    return scored("neural_attention", placement=PLACEMENTS["first"])


@named(PAPER)
def neural_attention_authors() -> Genome:
    """The authors' code: two hidden ReLU layers score each pair; first layer only.

        u_ij = relu(W_1 [q_i; k_j] + b_1)
        w_ij = relu(W_2 u_ij + b_2)
        score_ij = W_3 w_ij + b_3

    W_1: d' x 2 d', W_2: floor(d' / 2) x d', W_3: 1 x floor(d' / 2), one network for
    all heads. By default d' = d_h. The parameter reduced_dim sets a smaller d', to
    which two further maps d_h x d' with biases reduce q and k (eqs. 5 and 6).
    Softmax over j and the rest as in mha, without a scale.

    Decisions. Shapes are those of the code behind the paper's parameter counts. It
    has one hidden layer more than eq. 3, and no scale where eq. 9 has one. Its
    initialisation is not used: at d' = 2 its score is a constant for 40 % of all
    seeds and never trains. Here the first unit of each layer starts active.
    """
    return scored("neural_attention_authors", placement=PLACEMENTS["first"])
