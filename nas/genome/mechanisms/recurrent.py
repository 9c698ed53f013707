"""Attention with forget gates, and recurrent mechanisms whose state has a constant size.

f_t: forget gate of a head, or of each feature of it (a vector), between 0 and 1; S_t: d_h x d_h,
the state of a head; o_t = q_t S_t, its output before norms and gates. Decisions for the whole
family:

- Each head has its own queries, keys and values; q, k, v: d_h are projected as in mha.
- Products are divided by sqrt(d_h), as in the code of flash-linear-attention. A norm after the sum
  makes this factor irrelevant.
- Without a causal mask, sums run over all tokens: S holds the tokens on both sides, each times the
  gates between. The delta rule and scans read earlier tokens only, whatever the mask is.
- "norm" is a root mean square norm over each head, with one gain for all heads.
- A short convolution has kernel 4 and starts at the identity where the paper's starts at random.
"""

from __future__ import annotations

from typing import Any

from nas.genome import Genome
from nas.genome.mechanisms.base import graph, named

SUM = {"divide": False}
CONV = {"kernel": 4, "init": "identity"}


def _convolved(*streams: str) -> list[tuple[Any, ...]]:
    """Return nodes for a short convolution and swish of each stream; they come first."""
    nodes: list[tuple[Any, ...]] = []
    for number, stream in enumerate(streams):
        nodes += [("short_conv", stream, CONV), ("silu", [2 * number])]
    return nodes


def _summed(operands: list[Any], values: Any, at: int) -> list[tuple[Any, ...]]:
    """Return nodes for gated linear attention, of which the first has the index ``at``."""
    return [
        ("gated_product", operands),
        ("softmax_free", [at], SUM),
        ("weighted_sum", [at + 1, values]),
    ]


def _finished(at: int, gate: str) -> list[tuple[Any, ...]]:
    """Return nodes for the norm of node ``at``, and for the output gate."""
    return [("rms_norm", [at]), (gate, [at + 1])]


@named(paper="Lin et al. 2025 (Forgetting Transformer)")
def forgetting() -> Genome:
    """Softmax attention with a forget gate per head.

        f_t = sigmoid(w·x_t + b)
        D_ij = sum_{l = j+1 ... i} log f_l
        O = softmax(Q K^T / sqrt(d_h) + D) V

    Decisions. Without rotation of queries and keys, as in the paper. The additions
    of its "Pro" block (norms, output gate, token shift) are separate primitives.
    """
    return graph(
        ("scaled_dot_product", "qk"),
        ("forget_gate", "k"),
        ("decay", [0, 1]),
        ("softmax", [2]),
        ("weighted_sum", [3, "v"]),
    )


@named(paper="Sun et al. 2023 (Retentive Network)")
def retnet() -> Genome:
    """Linear attention with a constant gate per head.

        S_t = f S_{t-1} + k_t^T v_t,  f_h = 1 - 2^(-5 - h)
        out = (swish(X W_G) * norm(o)) W_O

    q and k are rotated by their position (RoPE in place of the paper's xPos, whose
    decay is the gate's).
    """
    return graph(
        ("rope", "q"),
        ("rope", "k"),
        ("constant_gate", "k"),
        *_summed([0, 1, 2], "v", at=3),
        *_finished(5, "swish_gate"),
    )


@named(paper="Yang et al. 2024 (Gated Linear Attention)")
def gla() -> Genome:
    """Linear attention with a forget gate per feature of the keys.

        f_t = sigmoid(W_2 W_1 x_t + b)^(1/16)
        S_t = diag(f_t) S_{t-1} + k_t^T v_t
        out = (swish(X W_G) * norm(o)) W_O

    W_1: 16 x d. Decisions. Keys are as wide as values; the paper halves them.
    """
    return graph(
        ("feature_gate", "k"),
        *_summed(["q", "k", 0], "v", at=1),
        *_finished(3, "swish_gate"),
    )


@named(paper="Dao and Gu 2024 (Mamba-2)")
def mamba2() -> Genome:
    """A state space with a scalar gate per head, as gated linear attention.

        r_t = softplus(w·x_t + b),  f_t = exp(-a r_t)
        S_t = f_t S_{t-1} + k_t^T (r_t v_t)
        out = norm(swish(X W_G) * (o + D v)) W_O

    q, k, v are C, B and X of the paper, each after a short convolution and swish.
    D: one number of a head. The norm is over all heads.

    Decisions. The published layer shares B and C between heads. The factor a of
    r_t v_t, which ``write_gate`` includes, is a constant of a head.
    """
    return graph(
        *_convolved("q", "k", "v"),
        ("forget_gate", "v", {"form": "exponential"}),
        ("write_gate", [5, 6], {"form": "rate"}),
        *_summed([1, 3, 6], 7, at=8),
        ("value_skip", [10, 5]),
        ("swish_gate", [11]),
        ("model_norm", [12]),
    )


@named(paper="Yang et al. 2024 (DeltaNet)")
def deltanet() -> Genome:
    """Linear attention that writes the error of what the state returns for a key.

        b_t = sigmoid(w·x_t + c)
        S_t = S_{t-1} + b_t k_t^T (v_t - k_t S_{t-1})
        out = norm(o) W_O

    q and k: a short convolution, swish, unit length; v: a short convolution, swish.
    """
    return graph(
        *_convolved("q", "k", "v"),
        ("l2_norm", [1]),
        ("l2_norm", [3]),
        ("delta", [3, 5]),
        ("scaled_dot_product", [6, 7]),
        ("softmax_free", [9], SUM),
        ("weighted_sum", [10, 8]),
        ("rms_norm", [11]),
    )


@named(paper="Yang et al. 2025 (Gated DeltaNet)")
def gated_deltanet() -> Genome:
    """The delta rule with a forget gate per head.

        r_t = softplus(w·x_t + b),  f_t = exp(-a r_t)
        S_t = f_t S_{t-1} + b_t k_t^T (v_t - f_t k_t S_{t-1})
        out = (swish(X W_G) * norm(o)) W_O

    q, k, v and b_t as in deltanet. Decisions. Values are as wide as keys; the
    published layer doubles them.
    """
    return graph(
        *_convolved("q", "k", "v"),
        ("l2_norm", [1]),
        ("l2_norm", [3]),
        ("forget_gate", "k", {"form": "exponential"}),
        ("delta", [3, 5, 8]),
        *_summed([6, 7, 8], 9, at=10),
        *_finished(12, "swish_gate"),
    )


@named(paper="Kimi Team 2025 (Kimi Linear)")
def kda() -> Genome:
    """Kimi Delta Attention: the delta rule with a forget gate per feature of the keys.

        S_t = (I - b_t k_t^T k_t) diag(f_t) S_{t-1} + b_t k_t^T v_t
        out = (sigmoid(W_G x) * norm(o)) W_O

    q, k, v and b_t as in deltanet; f_t = exp(-a softplus(W_2 W_1 x_t + b)).
    Decisions. The output gate has full rank; the published one has rank d_h.
    """
    return graph(
        *_convolved("q", "k", "v"),
        ("l2_norm", [1]),
        ("l2_norm", [3]),
        ("feature_gate", "k", {"form": "exponential"}),
        ("delta", [3, 5, 8]),
        *_summed([6, 7, 8], 9, at=10),
        *_finished(12, "output_gate"),
    )


@named(paper="Qin et al. 2023 (HGRN)")
def hgrn() -> Genome:
    """A gated recurrence of each feature, without queries.

        f_t = l + (1 - l) sigmoid(k_t),  h_t = f_t h_{t-1} + (1 - f_t) swish(v_t)
        out = (swish(X W_G) * norm(h)) W_O

    The norm is over all heads. Decisions. The lower bounds l of the features are
    learned in each layer; the paper's are sums of a softmax over layers. The state
    is real; the paper's phases are left out, as in its code.
    """
    return graph(
        ("token_gate", "k"),
        ("bound_gates", [0]),
        ("silu", "v"),
        ("write_gate", [2, 1]),
        ("scan", [3, 1]),
        ("model_norm", [4]),
        ("swish_gate", [5]),
        has_wq=False,
    )


@named(paper="Qin et al. 2024 (HGRN2)")
def hgrn2() -> Genome:
    """Gated linear attention whose keys are what the gates forget.

        f_t = l + (1 - l) sigmoid(k_t),  S_t = diag(f_t) S_{t-1} + (1 - f_t)^T v_t
        out = norm(o) W_O,  o_t = swish(q_t) S_t

    The norm is over all heads. Decisions. The lower bounds l as in hgrn.
    """
    return graph(
        ("silu", "q"),
        ("token_gate", "k"),
        ("bound_gates", [1]),
        ("write_gate", [2]),
        *_summed([0, 3, 2], "v", at=4),
        ("model_norm", [6]),
    )
