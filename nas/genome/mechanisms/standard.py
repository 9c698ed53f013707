"""Standard baselines, and mechanisms of 2020 to 2026: changes of standard attention.

Each of the latter is ``mha`` with the change that its paper describes. Rotary positions, which most
of these papers use, are left out; ``rope`` and ``qk_norm`` have them.
"""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms.base import Graph, named, scored


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


@named(paper="Su et al. 2021 (RoFormer)")
def rope() -> Genome:
    """Rotated queries and keys: scores depend on the distance of tokens.

        s_ij = (R_i q_i) . (R_j k_j) / sqrt(d_h)                        (eq. 16)

    R_t rotates d_h / 2 pairs of features by t 10000^(-2p / d_h), p = 0, 1, ...
    Decisions. Features p and p + d_h / 2 are a pair; in the paper 2p and 2p + 1.
    """
    g = Graph()
    query, key = g.add("rope", "q"), g.add("rope", "k")
    return g.genome(g.attend(g.add("scaled_dot_product", query, key), "v"))


@named(paper="Henry et al. 2020")
def qk_norm() -> Genome:
    """Normalised and rotated queries and keys, as in Qwen3.

        s_ij = (R_i norm(q_i)) . (R_j norm(k_j)) / sqrt(d_h),   R_t as in rope

    norm: RMS norm over a head's features, with a gain for each feature, shared by
    all heads. Decisions. The paper divides by the length, and multiplies the scores
    by one learned number; it does not rotate.
    """
    g = Graph()
    query, key = (g.add("rope", g.add("rms_norm", stream)) for stream in "qk")
    return g.genome(g.attend(g.add("scaled_dot_product", query, key), "v"))


@named(paper="Katharopoulos et al. 2020")
def linear() -> Genome:
    """Linear attention with positive features.

        f(x) = elu(x) + 1
        out_i = sum_j f(q_i).f(k_j) v_j / sum_j f(q_i).f(k_j)

    Decisions. The authors' code adds 1e-6 to the denominator; here its mean over
    the keys is at least 1e-6.
    """
    g = Graph()
    query, key = g.add("elu_plus_one", "q"), g.add("elu_plus_one", "k")
    weights = g.add("ratio", g.add("scaled_dot_product", query, key))
    return g.genome(g.add("weighted_sum", weights, "v"))


@named(paper="Differential Transformer")
def differential() -> Genome:
    """Differences of two attention maps, with a norm of each pair of heads.

        A_i = softmax(Q_2i K_2i^T / sqrt(d_h))
              - lambda_i softmax(Q_2i+1 K_2i+1^T / sqrt(d_h))
        head_i = RMSNorm(A_i [V_2i, V_2i+1])

    H / 2 heads, with values as wide as two heads. Decisions. lambda_i is a learned
    number of each head, initially 0.8; the paper's is exp(a.b) - exp(c.d) + 0.8,
    shared by all heads. The factor 1 - 0.8 after the norm is left out, as W_O can
    learn it. If H is odd, the last head is that of mha, with a norm.
    """
    g = Graph()
    weights = g.add("softmax", g.add("scaled_dot_product", "q", "k"))
    out = g.add("weighted_sum", g.add("head_difference", weights), "v")
    return g.genome(g.add("rms_norm", out, span=2))


@named(paper="Qiu et al. 2025")
def gated_attention() -> Genome:
    """Standard attention with an output gate computed from the block's input.

        out_i = (sum_j a_ij v_j) * sigmoid(x_i W_g) W_O,   a as in mha

    W_g: d x d, a gate for each feature: position G1 of the paper, the best one.
    Decisions. W_g has a bias if the task sets qkv_bias.
    """
    g = Graph()
    out = g.attend(g.add("scaled_dot_product", "q", "k"), "v")
    return g.genome(g.add("output_gate", out))


@named(paper="Allen-Zhu 2025 (Canon layers)")
def canon() -> Genome:
    """Short convolutions on queries, keys and values, each added to its input.

        h'_t = h_t + b + sum_s w_s * h_{t-s},   s = 0 ... 3,   h = q, k, v

    Position B of the paper (Physics of Language Models, part 4.1): after the
    projections, causal, one kernel for each feature. Decisions. There is a bias.
    """
    g = Graph()
    query, key, values = (g.add("add", s, g.add("short_conv", s, kernel=4)) for s in "qkv")
    return g.genome(g.attend(g.add("scaled_dot_product", query, key), values))


@named(paper="OpenAI 2025 (gpt-oss)")
def sink() -> Genome:
    """A learned score of each head in the denominator of softmax.

        a_ij = exp(s_ij) / (exp(t_h) + sum_k exp(s_ik)),   s as in mha

    t_h: a number of each head, initially 0 ("off by one"); a head can attend to
    nothing. Decisions. The model's windows and grouped keys are left out.
    """
    return scored(normaliser="softmax_sink")


@named(paper="DeepSeek-V2")
def mla() -> Genome:
    """Multi-head latent attention: keys and values of all heads from one latent.

        c_j = RMSNorm(x_j W_DKV),   k_j^h = W_UK^h c_j,   v_j^h = W_UV^h c_j

    W_DKV: d x d_h, W_UK^h, W_UV^h: d_h x d_h. Only c_j is cached: half of mqa's
    numbers. Decisions. The latent is one head wide; the paper's is four times as
    wide. Decoupled rotary keys and the latent of the queries are left out.
    """
    g = Graph()
    latent = g.add("rms_norm", "v")
    key, values = (g.add("head_linear", latent, least_heads="all") for _ in range(2))
    scores = g.add("scaled_dot_product", "q", key)
    return g.genome(g.attend(scores, values), kv_heads="one")


@named(paper="Tan et al. 2024")
def stick_breaking() -> Genome:
    """Stick-breaking: keys take shares of the remaining weight, the nearest first.

        b_ij = sigmoid(q_i.k_j / sqrt(d_h))
        a_ij = b_ij prod_{j < k <= i} (1 - b_ik)

    Decisions. The token itself comes first; in the paper only earlier tokens count.
    Without a causal mask keys are taken from the last token backwards.
    """
    return scored(normaliser="stick_breaking")


@named(paper="Zuhri et al. 2025")
def softpick() -> Genome:
    """Rectified softmax: weights of zero, and rows that may sum to less than one.

        a_ij = max(exp(s_ij) - 1, 0) / (e + sum_k |exp(s_ik) - 1|)

    s as in mha, e = 1e-6. Decisions. As in algorithm 1, all exponentials are
    divided by that of the row's maximum; here a maximum below zero counts as zero.
    """
    return scored(normaliser="softpick")


@named(paper="Shazeer et al. 2020")
def talking_heads() -> Genome:
    """Scores and weights are mixed across heads.

        S'_h = sum_g P_hg S_g,   A = softmax(S'),   A'_h = sum_g R_hg A_g  (sec. 4)

    S_g = Q_g K_g^T / sqrt(d_h); P, R: H x H, learned. Decisions. P and R start as
    identities, so as mha; the paper draws them.
    """
    g = Graph()
    scores = g.add("talking_heads", g.add("scaled_dot_product", "q", "k"))
    weights = g.add("talking_heads", g.add("softmax", scores))
    return g.genome(g.add("weighted_sum", weights, "v"))


@named(paper="Zhai 2026")
def exclusive() -> Genome:
    """Exclusive self-attention: outputs without their part along the own value.

        z_i = y_i - (y_i . v_i) v_i / |v_i|^2,   y as in mha

    v_i: the value of token i in the same head; W_O is applied to z. Decisions.
    Values shorter than 1e-3 are divided by 1e-3 and not by their length.
    """
    g = Graph()
    out = g.attend(g.add("scaled_dot_product", "q", "k"), "v")
    return g.genome(g.add("exclude_value", out, "v"))
