"""Standard baselines: multi-head, grouped-query, multi-query and additive attention."""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms.base import dot_product, named, scored


@named(paper="Vaswani et al. 2017")
def mha() -> Genome:
    """Multi-head attention.

        head_i = softmax(Q_i K_i^T / sqrt(d_h)) V_i                      (eq. 1)
        MultiHead(X) = Concat(head_1, ..., head_H) W_O               (section 3.2.2)

    i counts heads; Q_i, K_i, V_i: n x d_h are the columns of X W_Q, X W_K, X W_V
    that belong to head i; all four matrices are d x d.

    Reading: W_Q, W_K and W_V have no bias unless the task says qkv_bias; W_O has
    one. With biases it equals nn.MultiheadAttention, whose weights map one to one.
    """
    return dot_product()


@named(paper="Ainslie et al. 2023")
def gqa() -> Genome:
    """A quarter of the key and value heads.

        head_i = softmax(Q_i K_g^T / sqrt(d_h)) V_g,  g = floor(i / G) (section 2.2)

    G = H / H_kv query heads in a row, counted from 0, share one of the H_kv = H / 4
    key and value heads. W_Q, W_O: d x d; W_K, W_V: d x H_kv d_h.

    Reading: the paper leaves the number of groups open; a quarter is the reference
    of the SQA paper (4 of 16). Heads are repeated in place (0, 0, 1, 1), never
    tiled (0, 1, 0, 1), as F.scaled_dot_product_attention(enable_gqa=True) has it.
    """
    return dot_product(kv_heads="1/4")


@named(paper="Shazeer 2019")
def mqa() -> Genome:
    """One key and value head.

        head_i = softmax(Q_i K^T / sqrt(d_h)) V                          (section 3)

    All H query heads read the same K, V: n x d_h; W_K, W_V: d x d_h. Decoding keeps
    2 d_h numbers of a token in place of 2 d.

    Reading: scores are divided by sqrt(d_h); the paper's code leaves that to the
    weights.
    """
    return dot_product(kv_heads="one")


@named(paper="Bahdanau et al. 2015")
def additive() -> Genome:
    """One hidden tanh layer over the sum of query and key.

        score_ij = v . tanh(W_1 q_i + W_2 k_j)                       (section A.1.2)

    W_1, W_2: d_h x d_h and v: d_h, without biases; q_i, k_j: d_h, projected as in
    mha; softmax over j and the rest as there.

    Reading: the paper scores one decoder state against the encoder's; here each
    token is a query. The hidden layer is as wide as a head and one for all heads,
    as in Evolving Attention's code, and there is no scale. It is Neural Attention's
    eq. 4 with tanh, without biases: both split W [q; k] into W_1 q + W_2 k.
    """
    return scored("additive_attention_score")
