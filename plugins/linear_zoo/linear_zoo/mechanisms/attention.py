"""Softmax attention with blocks, gates, maps and slots, and gated linear attention.

Each is the token mixing of one layer: streams, short convolutions, norms and gates included.
Decisions for all of them:

- Each head has its own queries, keys and values, of the width of a head; published layers of some
  models have wider values or fewer key heads.
- Products are divided by sqrt(d_h). Norms use 1e-6 where the published code uses 1e-5.
- A short convolution has kernel 4, a bias, and starts at the identity.
- D_ij: the product of the forget gates f after token j up to token i, for each feature if gates
  belong to features; sums are over j <= i under a causal mask. Swish and SiLU are the same.
"""

from __future__ import annotations

from nas.genome import Genome, Ref
from nas.genome.mechanisms.base import Graph, named


def _gated(g: Graph, out: int, gate: int) -> int:
    return g.add("multiply", out, g.add("silu", gate))


def _slot_attention(g: Graph, query: int, key: int, values: Ref, writes: int, gates: int) -> int:
    """Add two gated sums over slots, with a softmax over the slots between them."""
    products = g.add("scaled_dot_product", query, key)
    weights = g.add("softmax_free", products, divide=False)
    slots = g.add("feature_softmax", g.add("slot_sum", weights, writes, gates))
    return g.sum(g.add("gated_product", slots, writes, gates), values)


@named(paper="Lu et al. 2025 (MoBA)")
def moba() -> Genome:
    """Mixture of block attention: each query sees its own block and the best others.

        g_im = q_i . mean(k_j of block m)
        softmax over the keys of the blocks with the two largest g_im,
        and of the block of token i itself

    Under a causal mask the blocks compete that end before the own block, and the
    own block is masked as usual. Blocks have 16 tokens; another size and number:
    moba:block=64,k=3.

    Decisions. The paper's blocks have 512 tokens and more. It counts the own block
    among its k. All scores are computed and most are then excluded, so that the
    number of multiply-adds is that of mha.
    """
    g = Graph()
    return g.genome(g.attend(g.add("block_filter", g.add("scaled_dot_product", "q", "k")), "v"))


@named(paper="Wall 2026")
def wall() -> Genome:
    """Softmax over products whose features decay by forget gates.

        score_ij = sum_u q_iu k_ju D_iju / sqrt(d_h)
        f_t = sigmoid(W x_t + b),   softmax over j as in mha

    W: d x d, a gate for each feature of each head; b is initially 8, so that gates
    start near 1. Source: Tilde Research, Wall Attention (a blog post).
    """
    g = Graph()
    gates = g.add("token_gate", g.add("projection", "k", bias=8))
    return g.genome(g.attend(g.add("gated_product", "q", "k", gates), "v"))


@named(paper="Parallax 2026")
def parallax() -> Genome:
    """Softmax attention with a first-order correction by second queries.

        p_ij = softmax_j(q_i.k_j / sqrt(d_h)),   s_ij = r_i.k_j
        out_i = sum_j p_ij (1 + sum_l p_il s_il - s_ij) v_j         (algorithm 1)

    r: a further projection of x; q, k and r are rotated by their position.

    Decisions. s is divided by sqrt(d_h), which the projection of r can undo.
    """
    g = Graph()
    query, key = g.add("rope", "q"), g.add("rope", "k")
    second = g.add("rope", g.add("projection", "q"))
    weights = g.add("softmax", g.add("scaled_dot_product", query, key))
    scores = g.add("scaled_dot_product", second, key)
    return g.genome(g.add("weighted_sum", g.add("local_linear", scores, weights), "v"))


@named(paper="Yang et al. 2025 (PaTH)")
def path() -> Genome:
    """Softmax attention with Householder maps between key and query as positions.

        score_ij = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(d_h)
        H_t = 1 - b_t d_t^T d_t,   b_t = 2 sigmoid(w.x_t + c)

    d_t: W_2 W_1 x_t, W_1: 32 x d, after a short convolution with kernel 3 and
    swish, scaled to unit length.
    """
    g = Graph()
    low = g.add("projection", "k", rank=32)
    directions = g.add("silu", g.add("short_conv", low, kernel=3, init="identity"))
    return g.genome(g.attend(g.add("path_product", "q", "k", directions), "v"))


@named(paper="Zhong et al. 2025 (DeltaFormer)")
def deltaformer() -> Genome:
    """Softmax attention over values that know what earlier tokens already hold.

        u_i = v_i - b_i sum_{j < i} a_ij u_j
        a_ij = softmax over j < i of q_i.k_j / sqrt(d_h),   b_i = w.x_i + c
        out = softmax(Q K^T / sqrt(d_h)) U W_O

    q and k are rotated by their position.
    """
    g = Graph()
    query, key = g.add("rope", "q"), g.add("rope", "k")
    values = g.add("softmax_delta", query, key, "v")
    return g.genome(g.attend(g.add("scaled_dot_product", query, key), values))


@named(paper="Peng et al. 2021 (ABC)")
def abc() -> Genome:
    """Attention with bounded memory: softmax attention over a few slots.

        K_m = sum_j p_jm k_j,  V_m = sum_j p_jm v_j
        p_jm = exp(s_jm) / sum_{l <= t} exp(s_lm),   s = x W_s
        o_t = softmax_m(q_t.K_m / sqrt(d_h)) V,   out = swish(X W_G) * norm(o) W_O

    d_h slots a head. q and k are rotated by their position, as in the code.

    Decisions. The code limits s to the interval from -32 to 32. The second sum is
    divided by sqrt(d_h), which the norm undoes.
    """
    g = Graph()
    query, key = g.add("rope", "q"), g.add("rope", "k")
    slots = g.add("projection", "v")
    gates = g.add("slot_gate", slots, form="share")
    out = _slot_attention(g, query, key, "v", g.add("prefix_softmax", slots), gates)
    return g.genome(_gated(g, g.add("rms_norm", out), g.add("projection", "v")))


@named(paper="Zhang et al. 2024 (GSA)")
def gsa() -> Genome:
    """Gated slot attention: softmax attention over slots that forget.

        f_t = sigmoid(x_t W_f)^(1/8),   p_t = 1 - f_t
        K_t = diag(f_t) K_(t-1) + p_t^T k_t,  V_t likewise
        out = norm(swish(softmax_m(q_t K_t^T / sqrt(d_h)) V_t)) W_O

    d_h slots a head; q, k and v after swish; the norm is over all heads.

    Decisions. The code divides neither sum by sqrt(d_h); here a learned factor of
    each head, on queries and before the last swish, can undo it. Both start at 1.
    """
    g = Graph()
    query, key, values = (g.add("silu", stream) for stream in "qkv")
    gates = g.add("slot_gate", g.add("projection", "v"), root=8)
    writes = g.add("write_gate", gates)
    out = _slot_attention(g, g.add("head_scale", query), key, values, writes, gates)
    return g.genome(g.add("model_norm", g.add("silu", g.add("head_scale", out))))


@named(paper="Qin et al. 2024 (LightNet)")
def lightnet() -> Genome:
    """Gated linear attention whose keys are softmax weights over the tokens so far.

        z_t = log sum_{j <= t} exp(k_j)
        S_t = diag(exp(z_(t-1) - z_t)) S_(t-1) + exp(k_t - z_t)^T v_t
        out = swish(X W_G) * norm(o) W_O,   o_t = swish(q_t) S_t

    The norm is over all heads. Decisions. W_G has the rank 128, or d if that is
    less; published: 128.
    """
    g = Graph()
    query, gates = g.add("silu", "q"), g.add("slot_gate", "k", form="share")
    keys = g.add("prefix_softmax", "k")
    out = g.sum(g.add("gated_product", query, keys, gates), "v")
    return g.genome(_gated(g, g.add("model_norm", out), g.add("projection", "v", rank=128)))


@named(paper="Peng et al. 2024 (Finch)")
def rwkv6() -> Genome:
    """RWKV-6: gated linear attention with a bonus for the current token.

        o_t = r_t (S_(t-1) + diag(u) k_t^T v_t)
        S_t = diag(f_t) S_(t-1) + k_t^T v_t,   f_t = exp(-exp(w_t))
        out = swish(g_t) * norm(o_t) W_O

    r, k, v, g: projections of tokens mixed with their predecessor by shares that
    depend on the token; w: W_2 tanh(W_1 x') + b of such a mix x', W_1: 64 x d.
    The norm is a layer norm of each head.

    Decisions. r, k and v are of the width of a head. Each stream has its own W_1 of
    the mix and its own m'; the paper shares m'. All heads share the gain of the
    norm, which has no shift. b is initially -4, and u is 1.
    """
    g = Graph()
    query, key, values, gate = (
        g.add("shifted_projection", stream, form="dynamic") for stream in "qkvv"
    )
    decay = g.add("shifted_projection", "k", form="dynamic", rank=64, activation="tanh", bias=-4)
    gates = g.add("slot_gate", decay, form="double_exponential")
    scores = g.add("bonus_product", query, key, gates, g.add("delay_gates", gates))
    out = g.add("layer_norm", g.sum(scores, values), shift=False)
    return g.genome(_gated(g, out, gate), has_wq=False, has_wk=False, has_wv=False)


@named(paper="Log-Linear Attention 2025")
def log_linear() -> Genome:
    """Mamba-2 whose sums weigh the past by levels of distance in powers of two.

        o_t = sum_j l_t,level(t,j) D_tj (q_t.k_j) r_j v_j / sqrt(d_h)
        l_t = softplus(a * (W x_t)),  r_t = softplus(w.x_t + b)
        out = norm(swish(X W_G) * (o_t + D v_t)) W_O

    level(t, j): the number of bits of t xor j. f_t = exp(-c r_t), a gate of each
    head, as in mamba2. The norm is over all heads.

    Decisions. Each head has its own q and k, which are C and B of the paper; the
    published layer shares them. There are 16 levels, of which the last holds all
    further keys. v is multiplied by c r_t in place of r_t, where c is a constant of
    a head.
    """
    g = Graph()
    query, key, values = (g.convolve(stream) for stream in "qkv")
    gates = g.add("forget_gate", "v", form="exponential")
    written = g.add("write_gate", values, gates, form="rate")
    scores = g.add("level_scale", g.add("gated_product", query, key, gates))
    out = g.add("value_skip", g.sum(scores, written), values)
    return g.genome(g.add("model_norm", _gated(g, out, g.add("projection", "v"))))
