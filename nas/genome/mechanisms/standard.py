"""Standard baselines: multi-head, grouped-query, multi-query and additive attention."""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms.base import named, scored


@named(paper="Vaswani et al. 2017")
def mha() -> Genome:
    """Multi-head attention.

        head_i = softmax(Q_i K_i^T / sqrt(d_h)) V_i                      (eq. 1)
        MultiHead(X) = Concat(head_1, ..., head_H) W_O               (section 3.2.2)

    Q_i, K_i, V_i: n x d_h, the columns of head i of X W_Q, X W_K, X W_V; matrices:
    d x d. Decisions. W_Q, W_K, W_V have a bias if the task sets qkv_bias, W_O
    always: then the block equals nn.MultiheadAttention.
    """
    return scored()


@named(paper="Ainslie et al. 2023")
def gqa() -> Genome:
    """A quarter of the key and value heads.

        head_i = softmax(Q_i K_g^T / sqrt(d_h)) V_g,  g = floor(i / G) (section 2.2)

    G = H / H_kv adjacent query heads share one of H_kv = H / 4 key and value heads;
    W_K, W_V: d x H_kv d_h. Decisions. The paper leaves H_kv open; a quarter is the
    baseline of the SQA paper. Heads are repeated in place (0, 0, 1, 1), not tiled.
    """
    return scored(kv_heads="1/4")


@named(paper="Shazeer 2019")
def mqa() -> Genome:
    """One key and value head.

        head_i = softmax(Q_i K^T / sqrt(d_h)) V                          (section 3)

    All H query heads read the same K, V: n x d_h; W_K, W_V: d x d_h. Decisions.
    Scores are divided by sqrt(d_h); the paper's code does not divide.
    """
    return scored(kv_heads="one")


@named(paper="Bahdanau et al. 2015")
def additive() -> Genome:
    """One hidden tanh layer over the sum of query and key.

        score_ij = v . tanh(W_1 q_i + W_2 k_j)                       (section A.1.2)

    W_1, W_2: d_h x d_h and v: d_h, shared by all heads, without biases; softmax and
    the rest as in mha. Decisions. The paper scores one decoder state against the
    encoder's; here each token is a query. There is no scale.
    """
    return scored("additive_attention_score")
