"""Relatives of the delta rule in language models of 2025 and 2026.

Notation and decisions are those of ``attention``. q, k and v are taken after a short convolution
and swish, q and k then have unit length, and b_t = sigmoid(w·x_t + c) is a number of each head.
"""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms.base import Graph, named


def _preconditioned(g: Graph) -> tuple[int, int, int, int]:
    """Add queries, keys, values and preconditioned keys."""
    query, key, values = (g.convolve(stream) for stream in "qkv")
    query, key = g.add("l2_norm", query), g.add("l2_norm", key)
    squares = g.add("multiply", g.add("strength", key), g.add("multiply", key, key))
    gates = g.add("forget_gate", "k", form="exponential")
    curvature = g.add("scan", squares, gates)
    return query, key, values, g.add("precondition", key, curvature)


def _erased(g: Graph, erase: int, key: int, values: int, gates: int) -> int:
    """Add the delta rule with one strength for what is erased and what is written."""
    strength = g.add("strength", key)
    erased, written = g.add("multiply", strength, erase), g.add("multiply", strength, values)
    return g.add("erase_delta", erased, key, written, gates)


def _finished(
    g: Graph, query: int, key: int, written: int, gates: int, *, is_swish: bool = False
) -> int:
    """Add the readout, its norm and the output gate."""
    normed = g.add("rms_norm", g.sum(g.add("gated_product", query, key, gates), written))
    if is_swish:
        return g.add("multiply", normed, g.add("silu", g.add("projection", "v")))
    return g.add("output_gate", normed)


@named(paper="Hu et al. 2025 (Comba)")
def comba() -> Genome:
    """The gated delta rule with weaker feedback, and a corrected query.

        u_t = b_t (v_t - f_t p_t S_(t-1)),   p_t = sigmoid(a) k_t
        S_t = f_t S_(t-1) + k_t^T u_t,   o_t = (q_t - e p_t) S_t
        out = sigmoid(X W_G) * norm(o) W_O

    a, e: a number of each head, initially 1; f_t = exp(-r softplus(w.x_t + c)), a
    gate of each head.

    Decisions. k gets unit length before p is taken from it, and q after e p is
    taken from it.
    """
    g = Graph()
    query, key, values = (g.convolve(stream) for stream in "qkv")
    key = g.add("l2_norm", key)
    feedback = g.add("head_scale", key, bounded=True)
    change = g.add("head_scale", feedback, initial=-1.0)
    query = g.add("l2_norm", g.add("add", query, change))
    gates = g.add("forget_gate", "k", form="exponential")
    written = _erased(g, feedback, key, values, gates)
    return g.genome(_finished(g, query, key, written, gates))


@named(paper="Gated DeltaNet-2 2026")
def gated_deltanet2() -> Genome:
    """The delta rule with gates of features for erasing, writing and forgetting.

        S_t = (1 - k_t^T (b_t * k_t)) diag(f_t) S_(t-1) + k_t^T (w_t * v_t)
        out = sigmoid(X W_G) * norm(o) W_O,   o_t = q_t S_t

    b_t, w_t: sigmoid(W x_t), a gate of each feature; f_t = exp(-r softplus(z_t)),
    z_t = W_2 W_1 x_t + c.

    Decisions. W_G has full rank; the published one has rank d_h.
    """
    g = Graph()
    query, key, values = (g.convolve(stream) for stream in "qkv")
    query, key = g.add("l2_norm", query), g.add("l2_norm", key)
    erase, write = g.add("output_gate", key), g.add("output_gate", values)
    gates = g.add("feature_gate", "k", form="exponential")
    written = g.add("erase_delta", erase, key, write, gates)
    return g.genome(_finished(g, query, key, written, gates))


@named(paper="von Oswald et al. 2025 (MesaNet)")
def mesanet() -> Genome:
    """Linear attention that solves a least squares problem for each token.

        H_t = f_t H_(t-1) + b_t k_t^T k_t,  S_t = f_t S_(t-1) + b_t k_t^T v_t
        o_t = q_t (H_t + diag(l))^-1 S_t
        out = norm(o) W_O

    f_t = sigmoid(w.x_t + c), a gate of each head; l: learned, at least 0.25. v has
    no convolution.

    Decisions. The systems are solved exactly; the code uses 30 steps of conjugate
    gradients.
    """
    g = Graph()
    query, key = (g.add("l2_norm", g.convolve(stream)) for stream in "qk")
    strength = g.add("strength", key, root=2)
    key = g.add("multiply", strength, key)
    gates = g.add("forget_gate", "k")
    query = g.add("mesa_query", query, key, gates)
    scores = g.add("gated_product", query, key, gates)
    return g.genome(g.add("rms_norm", g.sum(scores, g.add("multiply", strength, "v"))))


@named(paper="Preconditioned DeltaNet 2026")
def precond_gated_deltanet() -> Genome:
    """The gated delta rule whose written keys are divided by their past squares.

        A_t = g_t A_(t-1) + b'_t k_t^2,   k'_t = k_t 1.5^(-r / (1 + |r|))
        r = log(A_t + 1e-6) - c
        S_t = f_t S_(t-1) + k'_t^T b_t (v_t - f_t k_t S_(t-1))
        out = swish(X W_G) * norm(o) W_O,   o_t = q_t S_t

    f, g: gates of each head, of the form exp(-r softplus(w.x_t + c)); b': as b.
    """
    g = Graph()
    query, key, values, late = _preconditioned(g)
    gates = g.add("forget_gate", "k", form="exponential")
    written = _erased(g, key, late, values, gates)
    return g.genome(_finished(g, query, late, written, gates, is_swish=True))


@named(paper="Preconditioned DeltaNet 2026")
def precond_kda() -> Genome:
    """Kimi delta attention whose written keys are divided by their past squares.

        S_t = diag(f_t) S_(t-1) + k'_t^T b_t (v_t - k_t diag(f_t) S_(t-1))
        out = sigmoid(X W_G) * norm(o) W_O,   o_t = q_t S_t

    k', b as in precond_gated_deltanet; f_t: a gate of each feature.
    """
    g = Graph()
    query, key, values, late = _preconditioned(g)
    gates = g.add("feature_gate", "k", form="exponential")
    written = _erased(g, key, late, values, gates)
    return g.genome(_finished(g, query, late, written, gates))
