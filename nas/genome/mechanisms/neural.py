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

    s_i: D_K, U_i: h x D_K, V_i: 1 x h, b_i: h and c_i: 1, with h = 4 and D_K = d_h.
    Decisions. The paper leaves the activation open. Its start, U, V, b and c at
    zero, cannot train under softmax; here U is random. Both starts give dot
    products. c_i has no effect under softmax; with it, D_Q equals the paper's.
    """
    return scored("qana")


@named(PAPER)
def neural_attention() -> Genome:
    """A shared network scores each pair; first layer only.

        h_ij = gelu(W_h [q_i; k_j] + b_h)                                (eq. 3)
        score_ij = W_a h_ij + b_a                                        (eqs. 4, 8)
        NeuralAttention(Q, K, V) = softmax(score) V                      (eq. 9)

    W_h: m x 2 d_h, W_a: 1 x m, m = 16, one network for all heads. Decisions. Eq. 8
    gives each pair of positions its own weights; the counts of table 1 need shared
    ones. q and k are not reduced first (eqs. 5, 6; reduced_dim does so). Eq. 9's
    scale is left out, as in the authors' code. No activation is named.
    """
    return scored("neural_attention", placement=PLACEMENTS["first"])


@named(PAPER)
def neural_attention_authors() -> Genome:
    """The authors' code: two hidden ReLU layers score each pair; first layer only.

        u_ij = relu(W_1 [q_i; k_j] + b_1)
        w_ij = relu(W_2 u_ij + b_2)
        score_ij = W_3 w_ij + b_3

    W_1: d' x 2 d', W_2: floor(d' / 2) x d', d' = d_h, one network for all heads.
    The code has one layer more than eq. 3 and no scale. Decisions. Each layer's
    first unit starts active; as published, 40 % of seeds never train at d' = 2.
    """
    return scored("neural_attention_authors", placement=PLACEMENTS["first"])
