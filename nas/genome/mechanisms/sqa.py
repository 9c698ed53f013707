"""Sparse Query Attention (SQA): fewer query heads, so that fewer score maps are computed.

Filipek 2025, section 3.2. H_q is the number of query heads, H_kv the number of key and value heads.
Decisions for the whole family:

- d_h = d / H for every H_q; section 3.2 says "typically".
- K' and V' repeat each head in place, as in grouped-query attention. The paper's "G times along the
  head dimension" could also mean tiling.
- Only W_O has a bias, as in the authors' code.
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
        K = X W_K,  V = X W_V,   W_K, W_V: d x H_kv d_h                  (eqs. 5, 6)
        head_i = softmax(Q_i K'_i^T / sqrt(d_h)) V'_i,  i = 1 ... H_q    (eq. 7)
        SQA(X) = Concat(head_1, ..., head_{H_q}) W_O,  W_O: H_q d_h x d  (eq. 8)

    K', V': K, V with each head repeated H_q / H_kv times in place. Decisions.
    Section 3.3 leaves H_q and H_kv open; H / 2 and H / 4 are those of the
    experiments.
    """
    return scored(q_heads="1/2", kv_heads="1/4")


@named(PAPER)
def ssqa() -> Genome:
    """Symmetric: half of all heads.

        H_q = H_kv = H / 2;  eqs. 4 to 8 as in sqa                   (section 3.3)

    No head is repeated: it is mha with half of the heads at their full width.
    """
    return scored(q_heads="1/2", kv_heads="1/2")


@named(PAPER)
def xsqa() -> Genome:
    """Extreme: a quarter of all heads.

        H_q = H_kv = H / 4;  eqs. 4 to 8 as in sqa                     (section 3.3)

    Decisions. Section 3.3 says H_q <= H / 4, with any H_kv <= H_q; these are the
    counts of tables 1 and 2.
    """
    return scored(q_heads="1/4", kv_heads="1/4")


@named(PAPER)
def xsmqa() -> Genome:
    """Extreme: a quarter of the query heads, one key and value head.

    H_q = H / 4, H_kv = 1;  eqs. 4 to 8 as in sqa                    (table 1)
    """
    return scored(q_heads="1/4", kv_heads="one")


@named(PAPER)
def lsqa() -> Genome:
    """Light: three quarters of the query heads.

        H_q = 3 H / 4, H_kv = H / 4;  eqs. 4 to 8 as in sqa              (section 6)

    H must be a multiple of 4. Decisions. Section 6 does not give H_kv, which must
    divide H_q; a quarter keeps the KV cache of gqa and sqa.
    """
    return scored(q_heads="3/4", kv_heads="1/4")


@named(PAPER)
def rsqa() -> Genome:
    """Reverse: fewer query heads than key and value heads.

        head_i = softmax(Q'_i K_i^T / sqrt(d_h)) V_i,  i = 1 ... H_kv    (section 6)
        rSQA(X) = Concat(head_1, ..., head_{H_kv}) W_O,  W_O: H_kv d_h x d

    Q': Q with each head repeated H_kv / H_q times in place. Decisions. Section 6
    contradicts the constraint H_kv <= H_q of section 3.2 and gives no counts;
    H_q = H / 4 and H_kv = H / 2 are those of sqa, exchanged.
    """
    return scored(q_heads="1/4", kv_heads="1/2")


@named(PAPER)
def sw_sqa() -> Genome:
    """Sliding window: sqa, each query seeing the 32 tokens around it.

        head_i as in sqa, over the keys j with |t - j| <= w / 2,  w = 32 (sec. 2.5)
        under a causal mask over those with 0 <= t - j < w

    for the query at position t. Decisions. The paper names no width for SW-SQA; 32
    is half of a small vision transformer's tokens. sw_sqa:window=128 has another.
    """
    return replace(scored(q_heads="1/2", kv_heads="1/4"), visibility=Visibility(window=32))


@named(PAPER)
def flex_sqa() -> Genome:
    """Window and global tokens: ssqa, with four tokens that see all and that all see.

        head_i as in ssqa, over the keys j with |t - j| <= w / 2, or t < g, or j < g

    for the query at position t, with w = 32 and g = 4; under a causal mask also
    j <= t. Decisions. As in Longformer the first g tokens are global (a class token
    stands first), but they share the projections of all tokens.
    """
    visibility = Visibility(window=32, global_tokens=4)
    return replace(scored(q_heads="1/2", kv_heads="1/2"), visibility=visibility)
