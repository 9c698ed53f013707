"""Query-As-Network Attention: the query holds the weights of a small network that reads keys."""

from __future__ import annotations

from nas.genome import Genome
from nas.genome.mechanisms.base import named, scored


@named(paper="Vermillion 2025 (QANA)")
def qana() -> Genome:
    """Each query is a small network that scores the keys.

        q_i = [s_i; U_i; V_i; b_i; c_i]                                  (sec. 3.2)
        score_ij = s_i . k_j / sqrt(D_K) + V_i gelu(U_i k_j + b_i) + c_i (sec. 3.1)

    s_i: D_K, U_i: h x D_K, V_i: 1 x h, b_i: h and c_i: 1, with h = 4 hidden units
    and D_K = d_h, so that a head's query has D_Q = D_K + (h D_K + 2 h + 1) numbers.
    Softmax over j and the rest as in mha.

    Readings. The slices stand in the order of section 3.2; section 4 lists another.
    The network's sigma is open: gelu. U k is not divided by sqrt(D_K), as written.
    c_i is the same for all keys and does nothing under softmax; it is kept so that
    D_Q is the paper's. Positions are the backbone's; with rope: true the score
    rotates s, U and k itself, k too, where section 3.1 forgets it. The "key
    property" U k = U~ k~ of section 3.3 holds only at i = j; what holds is that
    scores depend on positions by j - i alone.

    Start. Section 4 sets U, V, b and c to zero. Then no gradient ever reaches them
    under softmax (those of V and c are the same for every key, those of U and b
    have the factor V = 0), and it stays a dot product for ever. Here only V, b and
    c start at zero, U at random: as exact a swap, and it trains (init: zero_out).
    """
    return scored("qana")
