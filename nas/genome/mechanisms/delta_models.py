"""Relatives of the delta rule in language models of 2025 and 2026.

Notation and decisions are those of ``linear_models``. q, k and v are taken after a short
convolution and swish, q and k then have unit length, and b_t = sigmoid(w·x_t + c) is a number of
each head.
"""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms.base import graph, named
from nas.genome.mechanisms.linear_models import Nodes


def _preconditioned(nodes: Nodes) -> tuple[int, int, int, int]:
    """Append queries, keys, values and preconditioned keys."""
    query, key, values = (nodes.convolved(stream) for stream in "qkv")
    query, key = nodes.add("l2_norm", query), nodes.add("l2_norm", key)
    squares = nodes.add("multiply", nodes.add("strength", key), nodes.add("multiply", key, key))
    gates = nodes.add("forget_gate", "k", form="exponential")
    curvature = nodes.add("scan", squares, gates)
    return query, key, values, nodes.add("precondition", key, curvature)


def _erased(nodes: Nodes, erase: int, key: int, values: int, gates: int) -> int:
    """Append the delta rule with one strength for what is erased and what is written."""
    strength = nodes.add("strength", key)
    pair = [nodes.add("multiply", strength, operand) for operand in (erase, values)]
    return nodes.add("erase_delta", pair[0], key, pair[1], gates)


def _finished(
    nodes: Nodes, query: int, key: int, written: int, gates: int, *, is_swish: bool = False
) -> None:
    """Append the readout, its norm and the output gate."""
    out = nodes.summed(nodes.add("gated_product", query, key, gates), written)
    normed = nodes.add("rms_norm", out)
    if is_swish:
        nodes.gated(normed, nodes.add("projection", "v"))
    else:
        nodes.add("output_gate", normed)


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
    nodes = Nodes()
    query, key, values = (nodes.convolved(stream) for stream in "qkv")
    key = nodes.add("l2_norm", key)
    feedback = nodes.add("head_scale", key, bounded=True)
    change = nodes.add("head_scale", feedback, initial=-1.0)
    query = nodes.add("l2_norm", nodes.add("add", query, change))
    gates = nodes.add("forget_gate", "k", form="exponential")
    written = _erased(nodes, feedback, key, values, gates)
    _finished(nodes, query, key, written, gates)
    return graph(*nodes)


@named(paper="Gated DeltaNet-2 2026")
def gated_deltanet2() -> Genome:
    """The delta rule with gates of features for erasing, writing and forgetting.

        S_t = (1 - k_t^T (b_t * k_t)) diag(f_t) S_(t-1) + k_t^T (w_t * v_t)
        out = sigmoid(X W_G) * norm(o) W_O,   o_t = q_t S_t

    b_t, w_t: sigmoid(W x_t), a gate of each feature; f_t = exp(-r softplus(z_t)),
    z_t = W_2 W_1 x_t + c.

    Decisions. W_G has full rank; the published one has rank d_h.
    """
    nodes = Nodes()
    query, key, values = (nodes.convolved(stream) for stream in "qkv")
    query, key = nodes.add("l2_norm", query), nodes.add("l2_norm", key)
    erase, write = nodes.add("output_gate", key), nodes.add("output_gate", values)
    gates = nodes.add("feature_gate", "k", form="exponential")
    written = nodes.add("erase_delta", erase, key, write, gates)
    _finished(nodes, query, key, written, gates)
    return graph(*nodes)


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
    nodes = Nodes()
    query, key = (nodes.add("l2_norm", nodes.convolved(stream)) for stream in "qk")
    strength = nodes.add("strength", key, root=2)
    key = nodes.add("multiply", strength, key)
    gates = nodes.add("forget_gate", "k")
    query = nodes.add("mesa_query", query, key, gates)
    scores = nodes.add("gated_product", query, key, gates)
    nodes.add("rms_norm", nodes.summed(scores, nodes.add("multiply", strength, "v")))
    return graph(*nodes)


@named(paper="Preconditioned DeltaNet 2026")
def precond_gated_deltanet() -> Genome:
    """The gated delta rule whose written keys are divided by their past squares.

        A_t = g_t A_(t-1) + b'_t k_t^2,   k'_t = k_t 1.5^(-r / (1 + |r|))
        r = log(A_t + 1e-6) - c
        S_t = f_t S_(t-1) + k'_t^T b_t (v_t - f_t k_t S_(t-1))
        out = swish(X W_G) * norm(o) W_O,   o_t = q_t S_t

    f, g: gates of each head, of the form exp(-r softplus(w.x_t + c)); b': as b.
    """
    nodes = Nodes()
    query, key, values, late = _preconditioned(nodes)
    gates = nodes.add("forget_gate", "k", form="exponential")
    written = _erased(nodes, key, late, values, gates)
    _finished(nodes, query, late, written, gates, is_swish=True)
    return graph(*nodes)


@named(paper="Preconditioned DeltaNet 2026")
def precond_kda() -> Genome:
    """Kimi delta attention whose written keys are divided by their past squares.

        S_t = diag(f_t) S_(t-1) + k'_t^T b_t (v_t - k_t diag(f_t) S_(t-1))
        out = sigmoid(X W_G) * norm(o) W_O,   o_t = q_t S_t

    k', b as in precond_gated_deltanet; f_t: a gate of each feature.
    """
    nodes = Nodes()
    query, key, values, late = _preconditioned(nodes)
    gates = nodes.add("feature_gate", "k", form="exponential")
    written = _erased(nodes, key, late, values, gates)
    _finished(nodes, query, late, written, gates)
    return graph(*nodes)
