"""Attention with forget gates, and recurrent mechanisms whose state has a constant size.

f_t: forget gate of a head, or of each feature of it (a vector), between 0 and 1; S_t: d_h x d_h,
the state of a head; o_t = q_t S_t, its output before norms and gates; q, k, v: d_h, projected as in
mha. Decisions for the whole family:

- Products are divided by sqrt(d_h), as in the code of flash-linear-attention. A norm after the sum
  makes this factor irrelevant.
- Without a causal mask, sums run over all tokens: S holds the tokens on both sides, each times the
  gates between. The delta rule and scans read earlier tokens only, whatever the mask is.
- "norm" is a root mean square norm over each head, with one gain for all heads.
- A short convolution has kernel 4 and starts at the identity where the paper's starts at random.
"""

from __future__ import annotations

from nas.genome import Genome, Ref
from nas.genome.mechanisms.base import Graph, named


def _delta_streams(g: Graph) -> tuple[int, int, int, int]:
    query, key, values = (g.convolve(stream) for stream in "qkv")
    return g.add("l2_norm", query), g.add("l2_norm", key), key, values


def _gated_sum(g: Graph, query: Ref, key: Ref, values: Ref, gates: int) -> int:
    return g.sum(g.add("gated_product", query, key, gates), values)


@named(paper="Lin et al. 2025 (Forgetting Transformer)")
def forgetting() -> Genome:
    """Softmax attention with a forget gate per head.

        f_t = sigmoid(w·x_t + b)
        D_ij = sum_{l = j+1 ... i} log f_l
        O = softmax(Q K^T / sqrt(d_h) + D) V

    Decisions. Queries and keys are not rotated, as in the paper. The gates start
    near 1 - 2^(-8 (h + 1) / H) in head h, which resembles ALiBi's penalties. The additions of
    the paper's "Pro" block (norms, output gate, token shift) are separate primitives.
    """
    g = Graph()
    scores = g.add("scaled_dot_product", "q", "k")
    return g.genome(g.attend(g.add("decay", scores, g.add("forget_gate", "k")), "v"))


@named(paper="Sun et al. 2023 (Retentive Network)")
def retnet() -> Genome:
    """Linear attention with a constant gate per head.

        S_t = f S_{t-1} + k_t^T v_t,  f_h = 1 - 2^(-5 - h)
        out = (swish(X W_G) * norm(o)) W_O

    q and k are rotated by RoPE in place of the paper's xPos, whose decay is the gate's.
    """
    g = Graph()
    query, key = g.add("rope", "q"), g.add("rope", "k")
    out = _gated_sum(g, query, key, "v", g.add("constant_gate", "k"))
    return g.genome(g.add("swish_gate", g.add("rms_norm", out)))


@named(paper="Yang et al. 2024 (Gated Linear Attention)")
def gla() -> Genome:
    """Linear attention with a forget gate per feature of the keys.

        f_t = sigmoid(W_2 W_1 x_t + b)^(1/16)
        S_t = diag(f_t) S_{t-1} + k_t^T v_t
        out = (swish(X W_G) * norm(o)) W_O

    W_1: 16 x d. Decisions. Keys are as wide as values; the paper halves them.
    """
    g = Graph()
    out = _gated_sum(g, "q", "k", "v", g.add("feature_gate", "k"))
    return g.genome(g.add("swish_gate", g.add("rms_norm", out)))


@named(paper="Dao and Gu 2024 (Mamba-2)")
def mamba2() -> Genome:
    """A state space with a scalar gate per head, as gated linear attention.

        r_t = softplus(w·x_t + b),  f_t = exp(-a r_t)
        S_t = f_t S_{t-1} + k_t^T (r_t v_t)
        out = norm(swish(X W_G) * (o + D v)) W_O

    q, k, v: C, B and X of the paper, each after a short convolution and swish; D: a
    number of each head; the norm is over all heads. Decisions. The published layer
    shares B and C between heads. write_gate multiplies r_t v_t by the constant a.
    """
    g = Graph()
    query, key, values = (g.convolve(stream) for stream in "qkv")
    gates = g.add("forget_gate", "v", form="exponential")
    written = g.add("write_gate", values, gates, form="rate")
    out = g.add("value_skip", _gated_sum(g, query, key, written, gates), values)
    return g.genome(g.add("model_norm", g.add("swish_gate", out)))


@named(paper="Yang et al. 2024 (DeltaNet)")
def deltanet() -> Genome:
    """Linear attention that writes the error of what the state returns for a key.

        b_t = sigmoid(w·x_t + c)
        S_t = S_{t-1} + b_t k_t^T (v_t - k_t S_{t-1})
        out = norm(o) W_O

    q and k: a short convolution, swish, unit length; v: a short convolution, swish.
    """
    g = Graph()
    query, unit_key, key, values = _delta_streams(g)
    written = g.add("delta", key, values)
    out = g.sum(g.add("scaled_dot_product", query, unit_key), written)
    return g.genome(g.add("rms_norm", out))


def _gated_delta(gate: str, output_gate: str) -> Genome:
    g = Graph()
    query, unit_key, key, values = _delta_streams(g)
    gates = g.add(gate, "k", form="exponential")
    out = _gated_sum(g, query, unit_key, g.add("delta", key, values, gates), gates)
    return g.genome(g.add(output_gate, g.add("rms_norm", out)))


@named(paper="Yang et al. 2025 (Gated DeltaNet)")
def gated_deltanet() -> Genome:
    """The delta rule with a forget gate per head.

        r_t = softplus(w·x_t + b),  f_t = exp(-a r_t)
        S_t = f_t S_{t-1} + b_t k_t^T (v_t - f_t k_t S_{t-1})
        out = (swish(X W_G) * norm(o)) W_O

    q, k, v and b_t as in deltanet. Decisions. Values are as wide as keys; the
    published layer doubles them.
    """
    return _gated_delta("forget_gate", "swish_gate")


@named(paper="Kimi Team 2025 (Kimi Linear)")
def kda() -> Genome:
    """Kimi Delta Attention: the delta rule with a forget gate per feature of the keys.

        S_t = (I - b_t k_t^T k_t) diag(f_t) S_{t-1} + b_t k_t^T v_t
        out = (sigmoid(W_G x) * norm(o)) W_O

    q, k, v and b_t as in deltanet; f_t = exp(-a softplus(W_2 W_1 x_t + b)).
    Decisions. The output gate has full rank; the published one has rank d_h.
    """
    return _gated_delta("feature_gate", "output_gate")


@named(paper="Qin et al. 2023 (HGRN)")
def hgrn() -> Genome:
    """A gated recurrence of each feature, without queries.

        f_t = l + (1 - l) sigmoid(k_t),  h_t = f_t h_{t-1} + (1 - f_t) swish(v_t)
        out = (swish(X W_G) * norm(h)) W_O

    The norm is over all heads. Decisions. The lower bounds l are learned in each
    layer; the paper's are sums of a softmax over layers. The state is real, as in
    its code; the paper has phases.
    """
    g = Graph()
    gates = g.add("bound_gates", g.add("token_gate", "k"))
    out = g.add("scan", g.add("write_gate", g.add("silu", "v"), gates), gates)
    return g.genome(g.add("swish_gate", g.add("model_norm", out)), has_wq=False)


@named(paper="Qin et al. 2024 (HGRN2)")
def hgrn2() -> Genome:
    """Gated linear attention whose keys are what the gates forget.

        f_t = l + (1 - l) sigmoid(k_t),  S_t = diag(f_t) S_{t-1} + (1 - f_t)^T v_t
        out = norm(o) W_O,  o_t = swish(q_t) S_t

    The norm is over all heads. Decisions. The lower bounds l as in hgrn.
    """
    g = Graph()
    query = g.add("silu", "q")
    gates = g.add("bound_gates", g.add("token_gate", "k"))
    out = _gated_sum(g, query, g.add("write_gate", gates), "v", gates)
    return g.genome(g.add("model_norm", out))


@named(paper="Arora et al. 2024 (Based)")
def based() -> Genome:
    """Linear attention by the second-order expansion of the exponential.

        a_ij = 1 + s_ij + s_ij^2 / 2,   s_ij = q_i.k_j / sqrt(r)
        out_i = sum_j a_ij v_j / sum_j a_ij

    q, k: r = d_h / 4 features a head (the paper: 16). Decisions. Windows of other
    layers are a matter of placement. The code adds 1e-12 to the denominator; here
    its mean over the keys is at least 1e-6, and it is never below 1/2.
    """
    g = Graph()
    weights = g.add("ratio", g.add("quadratic_product", "q", "k"))
    return g.genome(g.add("weighted_sum", weights, "v"), qk_dim="1/4")


@named(paper="Aksenov et al. 2024 (ReBased)")
def rebased() -> Genome:
    """Linear attention by squared products of normalised queries and keys.

        a_ij = (f(q_i).f(k_j))^2 / r,   f(x) = g * norm(x) + b
        out_i = sum_j a_ij v_j / sum_j a_ij

    norm: layer norm over the r = d_h / 4 features of a head. Decisions. Queries and
    keys have their own g and b; the code shares them. The code adds 1e-6 to the
    denominator; here its mean is at least 1e-6.
    """
    g = Graph()
    query, key = g.add("layer_norm", "q"), g.add("layer_norm", "k")
    weights = g.add("ratio", g.add("quadratic_product", query, key, form="square"))
    return g.genome(g.add("weighted_sum", weights, "v"), qk_dim="1/4")
