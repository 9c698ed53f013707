"""Token mixing of recent linear and hybrid language models, besides the families elsewhere.

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

from typing import Any

from nas.genome import Genome
from nas.genome.mechanisms.base import graph, named


class Nodes(list[tuple[Any, ...]]):
    """The nodes of a graph, in order."""

    def add(self, op: str, *inputs: str | int, **params: Any) -> int:
        """Append a node and return its index."""
        self.append((op, list(inputs), params))
        return len(self) - 1

    def convolved(self, stream: str) -> int:
        """Append a short convolution of a stream, and swish."""
        return self.add("silu", self.add("short_conv", stream, kernel=4, init="identity"))

    def summed(self, scores: int, values: str | int) -> int:
        """Append the sum of the values times the scores."""
        return self.add("weighted_sum", self.add("softmax_free", scores, divide=False), values)

    def attended(self, scores: int, values: str | int) -> int:
        """Append softmax attention."""
        return self.add("weighted_sum", self.add("softmax", scores), values)

    def gated(self, out: int, gate: int) -> int:
        """Append the product with swish of a further stream."""
        return self.add("multiply", out, self.add("silu", gate))

    def slot_attention(
        self, query: int, key: int, values: str | int, writes: int, gates: int
    ) -> int:
        """Append two gated sums over slots, with a softmax over the slots between them."""
        products = self.add("scaled_dot_product", query, key)
        weights = self.add("softmax_free", products, divide=False)
        slots = self.add("feature_softmax", self.add("slot_sum", weights, writes, gates))
        return self.summed(self.add("gated_product", slots, writes, gates), values)


@named(paper="Wall 2026")
def wall() -> Genome:
    """Softmax over products whose features decay by forget gates.

        score_ij = sum_u q_iu k_ju D_iju / sqrt(d_h)
        f_t = sigmoid(W x_t + b),   softmax over j as in mha

    W: d x d, a gate for each feature of each head; b is initially 8, so that gates
    start near 1. Source: Tilde Research, Wall Attention (a blog post).
    """
    nodes = Nodes()
    gates = nodes.add("token_gate", nodes.add("projection", "k", bias=8))
    nodes.attended(nodes.add("gated_product", "q", "k", gates), "v")
    return graph(*nodes)


@named(paper="Arora et al. 2024 (Based)")
def based() -> Genome:
    """Linear attention by the second-order expansion of the exponential.

        a_ij = 1 + s_ij + s_ij^2 / 2,   s_ij = q_i.k_j / sqrt(r)
        out_i = sum_j a_ij v_j / sum_j a_ij

    q, k: r = d_h / 4 features a head (the paper: 16), which makes 1 + r + r^2
    features of the state.

    Decisions. The paper alternates these layers with short windows, which is a
    matter of placement. The code adds 1e-12 to the denominator; here its mean over
    the keys is at least 1e-6, and it is never below 1/2.
    """
    nodes = Nodes()
    scores = nodes.add("quadratic_product", "q", "k")
    nodes.add("weighted_sum", nodes.add("ratio", scores), "v")
    return graph(*nodes, qk_dim="1/4")


@named(paper="Aksenov et al. 2024 (ReBased)")
def rebased() -> Genome:
    """Linear attention by squared products of normalised queries and keys.

        a_ij = (f(q_i).f(k_j))^2 / r,   f(x) = g * norm(x) + b
        out_i = sum_j a_ij v_j / sum_j a_ij

    norm: layer norm over the r = d_h / 4 features of a head.

    Decisions. Queries and keys have their own g and b; the code shares them. The
    code adds 1e-6 to the denominator; here its mean is at least 1e-6.
    """
    nodes = Nodes()
    query, key = nodes.add("layer_norm", "q"), nodes.add("layer_norm", "k")
    scores = nodes.add("quadratic_product", query, key, form="square")
    nodes.add("weighted_sum", nodes.add("ratio", scores), "v")
    return graph(*nodes, qk_dim="1/4")


@named(paper="Parallax 2026")
def parallax() -> Genome:
    """Softmax attention with a first-order correction by second queries.

        p_ij = softmax_j(q_i.k_j / sqrt(d_h)),   s_ij = r_i.k_j
        out_i = sum_j p_ij (1 + sum_l p_il s_il - s_ij) v_j         (algorithm 1)

    r: a further projection of x; q, k and r are rotated by their position.

    Decisions. s is divided by sqrt(d_h), which the projection of r can undo.
    """
    nodes = Nodes()
    query, key = nodes.add("rope", "q"), nodes.add("rope", "k")
    second = nodes.add("rope", nodes.add("projection", "q"))
    weights = nodes.add("softmax", nodes.add("scaled_dot_product", query, key))
    scores = nodes.add("scaled_dot_product", second, key)
    nodes.add("weighted_sum", nodes.add("local_linear", scores, weights), "v")
    return graph(*nodes)


@named(paper="Yang et al. 2025 (PaTH)")
def path() -> Genome:
    """Softmax attention with Householder maps between key and query as positions.

        score_ij = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(d_h)
        H_t = 1 - b_t d_t^T d_t,   b_t = 2 sigmoid(w.x_t + c)

    d_t: W_2 W_1 x_t, W_1: 32 x d, after a short convolution with kernel 3 and
    swish, scaled to unit length.
    """
    nodes = Nodes()
    low = nodes.add("projection", "k", rank=32)
    directions = nodes.add("silu", nodes.add("short_conv", low, kernel=3, init="identity"))
    nodes.attended(nodes.add("path_product", "q", "k", directions), "v")
    return graph(*nodes)


@named(paper="Zhong et al. 2025 (DeltaFormer)")
def deltaformer() -> Genome:
    """Softmax attention over values that know what earlier tokens already hold.

        u_i = v_i - b_i sum_{j < i} a_ij u_j
        a_ij = softmax over j < i of q_i.k_j / sqrt(d_h),   b_i = w.x_i + c
        out = softmax(Q K^T / sqrt(d_h)) U W_O

    q and k are rotated by their position.
    """
    nodes = Nodes()
    query, key = nodes.add("rope", "q"), nodes.add("rope", "k")
    values = nodes.add("softmax_delta", query, key, "v")
    nodes.attended(nodes.add("scaled_dot_product", query, key), values)
    return graph(*nodes)


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
    nodes = Nodes()
    query, key = nodes.add("rope", "q"), nodes.add("rope", "k")
    slots = nodes.add("projection", "v")
    gates = nodes.add("token_gate", slots, form="share")
    out = nodes.slot_attention(query, key, "v", nodes.add("prefix_softmax", slots), gates)
    nodes.gated(nodes.add("rms_norm", out), nodes.add("projection", "v"))
    return graph(*nodes)


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
    nodes = Nodes()
    query, key, values = (nodes.add("silu", stream) for stream in "qkv")
    gates = nodes.add("token_gate", nodes.add("projection", "v"), root=8)
    writes = nodes.add("write_gate", gates)
    out = nodes.slot_attention(nodes.add("head_scale", query), key, values, writes, gates)
    nodes.add("model_norm", nodes.add("silu", nodes.add("head_scale", out)))
    return graph(*nodes)


@named(paper="Qin et al. 2024 (LightNet)")
def lightnet() -> Genome:
    """Gated linear attention whose keys are softmax weights over the tokens so far.

        z_t = log sum_{j <= t} exp(k_j)
        S_t = diag(exp(z_(t-1) - z_t)) S_(t-1) + exp(k_t - z_t)^T v_t
        out = swish(X W_G) * norm(o) W_O,   o_t = swish(q_t) S_t

    The norm is over all heads. Decisions. W_G has the rank 128, or d if that is
    less; published: 128.
    """
    nodes = Nodes()
    query, gates = nodes.add("silu", "q"), nodes.add("token_gate", "k", form="share")
    keys = nodes.add("prefix_softmax", "k")
    out = nodes.summed(nodes.add("gated_product", query, keys, gates), "v")
    nodes.gated(nodes.add("model_norm", out), nodes.add("projection", "v", rank=128))
    return graph(*nodes)


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
    nodes = Nodes()
    query, key, values, gate = (
        nodes.add("shifted_projection", stream, form="dynamic") for stream in "qkvv"
    )
    decay = nodes.add(
        "shifted_projection", "k", form="dynamic", rank=64, activation="tanh", bias=-4
    )
    gates = nodes.add("token_gate", decay, form="double_exponential")
    scores = nodes.add("bonus_product", query, key, gates, nodes.add("delay_gates", gates))
    nodes.gated(nodes.add("layer_norm", nodes.summed(scores, values), shift=False), gate)
    return graph(*nodes, has_wq=False, has_wk=False, has_wv=False)


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
    nodes = Nodes()
    query, key, values = (nodes.convolved(stream) for stream in "qkv")
    gates = nodes.add("forget_gate", "v", form="exponential")
    written = nodes.add("write_gate", values, gates, form="rate")
    scores = nodes.add("level_scale", nodes.add("gated_product", query, key, gates))
    out = nodes.add("value_skip", nodes.summed(scores, written), values)
    nodes.add("model_norm", nodes.gated(out, nodes.add("projection", "v")))
    return graph(*nodes)
