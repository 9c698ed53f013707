"""The mechanisms of the five papers behind this project, and two controls.

- Evolving Attention: the champion of the published search (Hamza 2025).
- Sparse Query Attention (SQA, Filipek 2025, section 3.2): H_q query heads and H_kv key and value
  heads, so that fewer score maps are computed. Decisions for the family: d_h = d / H for every H_q
  (section 3.2: "typically"). K' and V' repeat each head in place, as in grouped-query attention;
  the paper's "G times along the head dimension" could also mean tiling. Only W_O has a bias, as in
  the authors' code. H_q = H is allowed, so that the family includes mha, gqa and mqa.
- Query-As-Network Attention (QANA, Vermillion 2025).
- Neural Attention (DiGiugno and Mahmood 2025), by the paper and by its published code.
- Patterns and Messages (the blog post "Refactoring the Attention Equations", 2025): products of a
  head's projection matrices as single matrices. They are parameters of their own, which can have a
  higher rank; ``nas.merge`` computes the products of a trained block's matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nas.genome import PLACEMENTS, Genome, Visibility
from nas.genome.mechanisms.base import Graph, named, scored

SQA: Final = "Sparse Query Attention"
NEURAL: Final = "Neural Attention"
PATTERNS: Final = "Patterns and Messages"
ONLY_VALUES: Final[Mapping[str, Any]] = {
    "has_wq": False,
    "has_wk": False,
}  # the champion's projections


@named(SQA)
def sqa() -> Genome:
    """Half the query heads, a quarter of the key and value heads.

        Q = X W_Q,   W_Q: d x H_q d_h                                    (eq. 4)
        K = X W_K,  V = X W_V,   W_K, W_V: d x H_kv d_h                  (eqs. 5, 6)
        head_i = softmax(Q_i K'_i^T / sqrt(d_h)) V'_i,  i = 1 ... H_q    (eq. 7)
        SQA(X) = Concat(head_1, ..., head_{H_q}) W_O,  W_O: H_q d_h x d  (eq. 8)

    K', V': K, V with each head repeated H_q / H_kv times in place. Decisions.
    Section 3.3 leaves H_q and H_kv open; H / 2 and H / 4 are the experiments'.
    """
    return scored(q_heads="1/2", kv_heads="1/4")


@named(SQA)
def ssqa() -> Genome:
    """Symmetric: half of all heads.

    H_q = H_kv = H / 2;  eqs. 4 to 8 as in sqa, without repeated heads (section 3.3)
    """
    return scored(q_heads="1/2", kv_heads="1/2")


@named(SQA)
def xsqa() -> Genome:
    """Extreme: a quarter of all heads.

        H_q = H_kv = H / 4;  eqs. 4 to 8 as in sqa                     (section 3.3)

    Decisions. Section 3.3 allows fewer heads; these are those of tables 1 and 2.
    """
    return scored(q_heads="1/4", kv_heads="1/4")


@named(SQA)
def xsmqa() -> Genome:
    """Extreme: a quarter of the query heads, one key and value head.

    H_q = H / 4, H_kv = 1;  eqs. 4 to 8 as in sqa                    (table 1)
    """
    return scored(q_heads="1/4", kv_heads="one")


@named(SQA)
def lsqa() -> Genome:
    """Light: three quarters of the query heads.

        H_q = 3 H / 4, H_kv = H / 4;  eqs. 4 to 8 as in sqa              (section 6)

    H must be a multiple of 4. Decisions. Section 6 does not give H_kv, which must
    divide H_q; a quarter keeps the KV cache of gqa and sqa.
    """
    return scored(q_heads="3/4", kv_heads="1/4")


@named(SQA)
def rsqa() -> Genome:
    """Reverse: fewer query heads than key and value heads.

        head_i = softmax(Q'_i K_i^T / sqrt(d_h)) V_i,  i = 1 ... H_kv    (section 6)
        rSQA(X) = Concat(head_1, ..., head_{H_kv}) W_O,  W_O: H_kv d_h x d

    Q': Q with each head repeated H_kv / H_q times in place. Decisions. Section 6
    contradicts H_kv <= H_q of section 3.2 and gives no counts; H_q = H / 4 and
    H_kv = H / 2 are those of sqa, exchanged.
    """
    return scored(q_heads="1/4", kv_heads="1/2")


@named(SQA)
def sw_sqa() -> Genome:
    """Sliding window: sqa, each query seeing the 32 tokens around it.

        head_i as in sqa, over the keys j with |t - j| <= w / 2,  w = 32 (sec. 2.5)
        under a causal mask over those with 0 <= t - j < w

    for the query at position t. Decisions. The paper names no width for SW-SQA; 32
    is half of a small vision transformer's tokens. sw_sqa:window=128 has another.
    """
    return scored(visibility=Visibility(window=32), q_heads="1/2", kv_heads="1/4")


@named(SQA)
def flex_sqa() -> Genome:
    """Window and global tokens: ssqa, with four tokens that see all and that all see.

        head_i as in ssqa, over the keys j with |t - j| <= w / 2, or t < g, or j < g

    for the query at position t, with w = 32 and g = 4; under a causal mask also
    j <= t. Decisions. As in Longformer the first g tokens are global (a class token
    stands first), but they share the projections of all tokens.
    """
    visibility = Visibility(window=32, global_tokens=4)
    return scored(visibility=visibility, q_heads="1/2", kv_heads="1/2")


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


@named(NEURAL)
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


@named(NEURAL)
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


@named(PATTERNS)
def patterns() -> Genome:
    """Queries and keys merged: every head compares patterns with whole tokens.

        W^P_i = W^Q_i (W^K_i)^T,   P_i = X W^P_i                         (section 4)
        head_i = softmax(P_i X^T / sqrt(d_h)) V_i

    W^P_i: d x d, learned as one matrix of any rank. Values and output as in mha.
    Decisions. Scores are divided by sqrt(d_h), as with two factors.
    """
    return scored(has_wk=False, raw="shared")


@named(PATTERNS)
def messages() -> Genome:
    """Values and outputs merged: heads send messages that are summed.

        W^M_i = W^V_i W^O_i,   M_i = X W^M_i                             (section 3)
        MultiHead(X) = sum_i softmax(Q_i K_i^T / sqrt(d_h)) M_i

    W^M_i: d x d, learned as one matrix. Queries and keys as in mha. There is no W_O
    and, as in the blog, no bias.
    """
    return scored(has_wo=False, merge="sum")


@named(PATTERNS)
def patterns_and_messages() -> Genome:
    """Patterns and messages together: two matrices for each head.

    MultiHead(X) = sum_i softmax(P_i X^T / sqrt(d_h)) M_i            (section 5)
    """
    return scored(has_wk=False, has_wo=False, raw="shared", merge="sum")


@named(paper="Evolving Attention")
def champion_2025() -> Genome:
    """The published champion, query-less.

        Weights = sigmoid(V K^T / sqrt(d_k))                             (eq. 1)
        Transformed = LayerNorm(gelu(V))                                 (eq. 2)
        Output = Weights Transformed                                     (eq. 3)

    V = X W_V and K = X, both cut into heads; W_V, W_O: d x d. Decisions. The
    sigmoid has no bias of -log n, so rows of Weights sum to about n / 2;
    length_bias adds it. LayerNorm is over a head's features, shared by all heads.
    """
    g = Graph()
    weights = g.add("sigmoid", g.add("scaled_dot_product", "v", "k"))
    values = g.add("layer_norm", g.add("gelu", "v"))
    return g.genome(g.add("weighted_sum", weights, values), **ONLY_VALUES)


@named(paper="control")
def uniform() -> Genome:
    """The mean of all values: no attention.

    out_i = ((1 / n_i) sum_j V_j) W_O,   j over the n_i tokens that i sees
    """
    g = Graph()
    weights = g.add("uniform", g.add("scaled_dot_product", "k", "k"))
    return g.genome(g.add("weighted_sum", weights, "v"), **ONLY_VALUES)


@named(paper="control")
def champion_control() -> Genome:
    """Standard attention with the champion's two projections.

    It differs from champion_2025 in the sigmoid, GELU and LayerNorm only.
    """
    g = Graph()
    return g.genome(g.attend(g.add("scaled_dot_product", "v", "k"), "v"), **ONLY_VALUES)
