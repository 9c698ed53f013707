"""Sparse Query Attention: fewer query heads, so that fewer score maps are computed.

Filipek 2025, section 3.2; the docstring of ``sqa`` has the equations. H_q is the number of query
heads, H_kv that of key and value heads. Readings of all members: d_h = d / H for every H_q
(section 3.2 says "typically"). K' and V' repeat each head in place, as in grouped-query attention
("analogous to the one used in GQA"); the paper's "G times along the head dimension" would also fit
tiling, which gives other numbers. The paper mentions no biases: W_Q, W_K, W_V have none and W_O has
one, as in the authors' code: d d_h (2 H_q + 2 H_kv) + d parameters a layer. H_q = H is allowed,
so that mha, gqa and mqa are members; the paper requires H_q < H.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nas.genome import Genome, Visibility
from nas.genome.mechanisms.base import dot_product, named

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

    Reading: section 3.3 leaves both counts open ("standard SQA"); these are those
    of its experiments (8 and 4 of 16). W_O alone has a bias, as in the authors'
    code.
    """
    return dot_product(q_heads="1/2", kv_heads="1/4")


@named(PAPER)
def ssqa() -> Genome:
    """Symmetric: half of all heads.

        H_q = H_kv = H / 2;  eqs. 4 to 8 as in sqa                   (section 3.3)

    No head is repeated, K' = K and V' = V: multi-head attention of half the heads
    at their full width, W_Q, W_K, W_V: d x d / 2 and W_O: d / 2 x d, for which
    every kernel for standard attention fits.
    """
    return dot_product(q_heads="1/2", kv_heads="1/2")


@named(PAPER)
def xsqa() -> Genome:
    """Extreme: a quarter of all heads.

        H_q = H_kv = H / 4;  eqs. 4 to 8 as in sqa                     (section 3.3)

    Reading: section 3.3 says H_q <= H / 4, with any H_kv <= H_q; these are the
    counts of tables 1 and 2 (4 and 4 of 16, 2 and 2 of 8), whose KV cache equals
    gqa's.
    """
    return dot_product(q_heads="1/4", kv_heads="1/4")


@named(PAPER)
def xsmqa() -> Genome:
    """Extreme: a quarter of the query heads, one key and value head.

        H_q = H / 4, H_kv = 1;  eqs. 4 to 8 as in sqa                    (table 1)

    The smallest of table 1 in parameters and KV cache, and no faster than xsqa: the
    score maps are as many.

    Reading: the paper has the name in table 1 only (4 and 1 of 16).
    """
    return dot_product(q_heads="1/4", kv_heads="one")


@named(PAPER)
def lsqa() -> Genome:
    """Light: three quarters of the query heads.

        H_q = 3 H / 4, H_kv = H / 4;  eqs. 4 to 8 as in sqa              (section 6)

    Exists where 4 divides H. Each key and value head serves three query heads.

    Reading: section 6 says H_q = 0.75 H and nothing of H_kv, which must divide H_q;
    a quarter keeps the KV cache of gqa and sqa. "25 % speed-up" is meant as 25 %
    fewer operations, which is 1.33 times faster by eq. 9.
    """
    return dot_product(q_heads="3/4", kv_heads="1/4")


@named(PAPER)
def rsqa() -> Genome:
    """Reverse: fewer query heads than key and value heads.

        head_i = softmax(Q'_i K_i^T / sqrt(d_h)) V_i,  i = 1 ... H_kv    (section 6)
        rSQA(X) = Concat(head_1, ..., head_{H_kv}) W_O,  W_O: H_kv d_h x d

    H_q = H / 4 and H_kv = H / 2; Q' is Q with each head repeated H_kv / H_q times
    in place, so that there are H_kv score maps and scores cost 2 H_kv n^2 d_h MACs.

    Reading: section 6 ("the query heads would be repeated") contradicts the
    constraint H_kv <= H_q of section 3.2; here it wins, for this member alone. The
    section gives no counts; 4 and 8 of 16 mirror sqa.
    """
    return dot_product(q_heads="1/4", kv_heads="1/2")


@named(PAPER)
def sw_sqa() -> Genome:
    """Sliding window: sqa, each query seeing the 32 tokens around it.

        head_i as in sqa, over the keys j with |t - j| <= w / 2,  w = 32 (sec. 2.5)
        under a causal mask over those with 0 <= t - j < w

    for the query at position t; counts of heads as in sqa.

    Readings. The interval [t - w/2, t + w/2] of section 2.5 holds w + 1 tokens for
    even w, and other systems' windows differ by one; the causal window here is w
    tokens, its own included. The paper names no width for SW-SQA; 32 is half of a
    small vision transformer's tokens. Change it: sw_sqa:window=128.
    """
    return replace(dot_product(q_heads="1/2", kv_heads="1/4"), visibility=Visibility(window=32))


@named(PAPER)
def flex_sqa() -> Genome:
    """Window and global tokens: ssqa, where four tokens see and are seen by all.

        head_i as in ssqa, over the keys j with |t - j| <= w / 2, or t < g, or j < g

    for the query at position t, w = 32 and g = 4; under a causal mask j <= t too.

    Readings. Section 6 asks for heads that the kernel likes (H_q = H_kv) and for
    windows with global tokens; these are those of Longformer, the first g tokens,
    with the projections of all others. (In the authors' code the global tokens are
    queries whose outputs are cut away: nothing ever reaches them.) A class token,
    which stands first, is one of them.
    """
    visibility = Visibility(window=32, global_tokens=4)
    return replace(dot_product(q_heads="1/2", kv_heads="1/2"), visibility=visibility)
