"""Sparse Query Attention (SQA): fewer query heads, so that fewer score maps are computed.

Filipek 2025, section 3.2; the docstring of ``sqa`` has the equations. H_q is the number of query
heads, H_kv the number of key and value heads. Decisions for the whole family:

- d_h = d / H for every H_q; section 3.2 says "typically".
- K' and V' repeat each head in place, as in grouped-query attention ("analogous to the one used in
  GQA"). The paper's "G times along the head dimension" could also mean tiling.
- The paper mentions no biases. As in the authors' code only W_O has one, and a layer has
  d d_h (2 H_q + 2 H_kv) + d parameters.
- H_q = H is allowed, so that the family includes mha, gqa and mqa; the paper requires H_q < H.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nas.genome import Genome, Visibility
from nas.genome.mechanisms.base import named, scored

PAPER: Final = "Sparse Query Attention"


@named(PAPER)
def sqa() -> Genome:
    """Half the query heads, a quarter of the key and value heads.

        Q = X W_Q,   W_Q: d x H_q d_h                                    (eq. 4)
        K = X W_K,   W_K: d x H_kv d_h                                   (eq. 5)
        V = X W_V,   W_V: d x H_kv d_h                                   (eq. 6)
        head_i = softmax(Q_i K'_i^T / sqrt(d_h)) V'_i,  i = 1 ... H_q    (eq. 7)
        SQA(X) = Concat(head_1, ..., head_{H_q}) W_O,  W_O: H_q d_h x d  (eq. 8)

    H_q = H / 2 and H_kv = H / 4; K', V' are K, V with each head repeated H_q / H_kv
    times in place. d_h = d / H, with H the heads of the backbone.

    Decisions. Section 3.3 leaves both counts open ("standard SQA"); these counts
    are those of its experiments (8 and 4 of 16). Only W_O has a bias, as in the
    authors' code.
    """
    return scored(q_heads="1/2", kv_heads="1/4")


@named(PAPER)
def ssqa() -> Genome:
    """Symmetric: half of all heads.

        H_q = H_kv = H / 2;  eqs. 4 to 8 as in sqa                   (section 3.3)

    No head is repeated (K' = K and V' = V): it is multi-head attention with half of
    the heads at their full width. W_Q, W_K, W_V: d x d / 2, W_O: d / 2 x d. Every
    kernel for standard attention can compute it.
    """
    return scored(q_heads="1/2", kv_heads="1/2")


@named(PAPER)
def xsqa() -> Genome:
    """Extreme: a quarter of all heads.

        H_q = H_kv = H / 4;  eqs. 4 to 8 as in sqa                     (section 3.3)

    Decisions. Section 3.3 says H_q <= H / 4, with any H_kv <= H_q; these are the
    counts of tables 1 and 2 (4 and 4 of 16, 2 and 2 of 8). The KV cache equals
    gqa's.
    """
    return scored(q_heads="1/4", kv_heads="1/4")


@named(PAPER)
def xsmqa() -> Genome:
    """Extreme: a quarter of the query heads, one key and value head.

        H_q = H / 4, H_kv = 1;  eqs. 4 to 8 as in sqa                    (table 1)

    It has the fewest parameters and the smallest KV cache of table 1. It has as
    many score maps as xsqa and is no faster.

    Decisions. The paper has the name only in table 1 (4 and 1 of 16).
    """
    return scored(q_heads="1/4", kv_heads="one")


@named(PAPER)
def lsqa() -> Genome:
    """Light: three quarters of the query heads.

        H_q = 3 H / 4, H_kv = H / 4;  eqs. 4 to 8 as in sqa              (section 6)

    H must be a multiple of 4. Three query heads share a key and value head.

    Decisions. Section 6 says H_q = 0.75 H and does not give H_kv, which must divide
    H_q; a quarter keeps the KV cache of gqa and sqa. "25 % speed-up" means 25 %
    fewer operations, which is 1.33 times faster by eq. 9.
    """
    return scored(q_heads="3/4", kv_heads="1/4")


@named(PAPER)
def rsqa() -> Genome:
    """Reverse: fewer query heads than key and value heads.

        head_i = softmax(Q'_i K_i^T / sqrt(d_h)) V_i,  i = 1 ... H_kv    (section 6)
        rSQA(X) = Concat(head_1, ..., head_{H_kv}) W_O,  W_O: H_kv d_h x d

    H_q = H / 4 and H_kv = H / 2; Q' is Q with each head repeated H_kv / H_q times
    in place, so that there are H_kv score maps and scores cost 2 H_kv n^2 d_h MACs.

    Decisions. Section 6 ("the query heads would be repeated") contradicts the
    constraint H_kv <= H_q of section 3.2, which does not apply to rsqa here.
    Section 6 gives no counts; 4 and 8 of 16 are those of sqa, exchanged.
    """
    return scored(q_heads="1/4", kv_heads="1/2")


@named(PAPER)
def sw_sqa() -> Genome:
    """Sliding window: sqa, each query seeing the 32 tokens around it.

        head_i as in sqa, over the keys j with |t - j| <= w / 2,  w = 32 (sec. 2.5)
        under a causal mask over those with 0 <= t - j < w

    for the query at position t; counts of heads as in sqa.

    Decisions. The interval [t - w/2, t + w/2] of section 2.5 contains w + 1 tokens
    for even w, and other systems differ by one. The causal window here contains w
    tokens, with t itself. The paper names no width for SW-SQA; 32 is half of the
    tokens of a small vision transformer. Another width: sw_sqa:window=128.
    """
    return replace(scored(q_heads="1/2", kv_heads="1/4"), visibility=Visibility(window=32))


@named(PAPER)
def flex_sqa() -> Genome:
    """Window and global tokens: ssqa, with four tokens that see all and that all see.

        head_i as in ssqa, over the keys j with |t - j| <= w / 2, or t < g, or j < g

    for the query at position t, with w = 32 and g = 4; under a causal mask also
    j <= t.

    Decisions. Section 6 asks for H_q = H_kv, which kernels support best, and for
    windows with global tokens. As in Longformer the first g tokens are global, but
    they share the projections of all tokens. A class token stands first and is
    global. (In the authors' code the outputs of the global tokens are discarded.)
    """
    visibility = Visibility(window=32, global_tokens=4)
    return replace(scored(q_heads="1/2", kv_heads="1/2"), visibility=visibility)
