"""Scores by a small network that reads a query and a key.

Additive attention (Bahdanau et al. 2015) and Neural Attention (DiGiugno and Mahmood 2025) compute

    scores_ij = sum_m weight_m act(left_im + right_jm) + shift

with ``left`` a linear map of the query and ``right`` a linear map of the key. The identity is not
offered as activation: its scores a_i + b_j give weights that do not depend on the query.
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import pair_score
from nas.genome.primitives.domains import Choice, Integer
from nas.genome.primitives.tensors import Key, Query, Scores

ACTIVATION: Final = Choice(default="gelu", values=("gelu", "relu", "silu", "tanh"))
REDUCED_DIM: Final = Integer(default=None, low=2, high=4096, nullable=True)


def sum_units(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    weight: Float[Tensor, "m"],
    shift: Float[Tensor, ""],
    activation: str,
) -> Scores:
    """Return scores_ij = sum_m weight_m act(left_im + right_jm) + shift; m counts hidden units.

    No tensor of all units, shape (b, h, q, k, m), is stored. ``activation`` is a name in
    ``torch.nn.functional``.
    """
    queries = left.unsqueeze(-2).unbind(-1)
    # The keys of a unit are contiguous in memory, for speed.
    keys = right.transpose(-2, -1).contiguous().unsqueeze(-2).unbind(2)
    # One multiply-add for each unit and pair, as in the formula of MACs.
    scores = shift.view(1, 1)
    for query, key, factor in zip(queries, keys, weight.unbind(), strict=True):
        active = getattr(F, activation)(query + key)
        scores = torch.addcmul(scores, active, factor)
    return scores


def sum_layers(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    second: Float[Tensor, "g m"],
    bias: Float[Tensor, "g"],
    third: Float[Tensor, "1 g"],
    shift: Float[Tensor, "1"],
) -> Scores:
    """Return the scores of a network with two hidden ReLU layers, of m and of g units.

    The first layer's input is left_i + right_j; ``second`` and ``bias`` are the weights of the
    second layer, ``third`` and ``shift`` those of the output.
    """
    hidden = F.relu(left.unsqueeze(3) + right.unsqueeze(2))
    return F.linear(F.relu(F.linear(hidden, second, bias)), third, shift).squeeze(-1)


def uniform(*shape: int, fan: int) -> nn.Parameter:
    """Return a parameter with the initial values of nn.Linear, of ``fan`` input features."""
    bound = fan**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


@pair_score(
    "additive_attention_score",
    "vᵀtanh(W₁{query} + W₂{key})",
    "Bahdanau et al. 2015, section A.1.2; Evolving Attention, section 2.1",
)
class AdditiveAttentionScore(nn.Module):
    """Scores by a hidden tanh layer of width w, without biases, shared by all heads.

    scores_ij = v · tanh(W1 q_i + W2 k_j)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_map = nn.Linear(width, width, bias=False)
        self.key_map = nn.Linear(width, width, bias=False)
        self.out_weight = uniform(width, fan=width)

    def forward(self, query: Query, key: Key) -> Scores:
        return sum_units(*self.units(query, key), activation="tanh")

    def units(self, query: Query, key: Key) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the query and key terms, output weights and bias for ``sum_units``."""
        shift = self.out_weight.new_zeros(())
        return self.query_map(query), self.key_map(key), self.out_weight, shift


@pair_score(
    "neural_attention",
    "MLP_{width}({query}; {key})",
    "Neural Attention, eq. 3-9",
    parameters={
        "reduced_dim": REDUCED_DIM,
        "width": Integer(default=16, low=1, high=4096),
        "activation": ACTIVATION,
    },
)
class NeuralAttention(nn.Module):
    """Scores by a network with one hidden layer, whose input is the query and the key.

    Q' = Q W_q + b_q, K' = K W_k + b_k                          (n x d'; eq. 5 and 6)
    h_ij = act(W_h [q'_i; k'_j] + b_h)                          (m; eq. 3 and 7)
    scores_ij = w_a · h_ij + b_a                                (eq. 4, 8; unlike 9 unscaled)

    All heads share the network; m is ``width`` and d' is ``reduced_dim``, of which None omits W_q
    and W_k. With ReLU the first hidden unit has the initial bias 2, so that the initial score is no
    constant without gradient.
    """

    def __init__(
        self,
        head_width: int,
        *,
        reduced_dim: int | None = None,
        width: int = 16,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        self.activation = activation
        self.inner = reduced_dim or head_width
        self.is_reduced = reduced_dim is not None

        if reduced_dim is not None:
            self.query_weight = uniform(reduced_dim, head_width, fan=head_width)
            self.query_bias = uniform(reduced_dim, fan=head_width)
            self.key_weight = uniform(reduced_dim, head_width, fan=head_width)
            self.key_bias = uniform(reduced_dim, fan=head_width)
        self.hidden_weight = uniform(width, 2 * self.inner, fan=2 * self.inner)
        self.hidden_bias = uniform(width, fan=2 * self.inner)
        self.out_weight = uniform(width, fan=width)
        self.out_bias = uniform(fan=width)
        if activation == "relu":
            with torch.no_grad():
                self.hidden_bias[0] = 2.0

    def forward(self, query: Query, key: Key) -> Scores:
        return sum_units(*self.units(query, key), activation=self.activation)

    def units(self, query: Query, key: Key) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the query and key terms, output weights and bias for ``sum_units``."""
        if self.is_reduced:
            query = F.linear(query, self.query_weight, self.query_bias)
            key = F.linear(key, self.key_weight, self.key_bias)
        left = F.linear(query, self.hidden_weight[:, : self.inner], self.hidden_bias)
        right = F.linear(key, self.hidden_weight[:, self.inner :])
        return left, right, self.out_weight, self.out_bias


@pair_score(
    "neural_attention_authors",
    "MLP₃({query}; {key})",
    "Neural Attention, table 1, and its published code",
    parameters={"reduced_dim": REDUCED_DIM},
)
class NeuralAttentionAuthors(nn.Module):
    """Scores by the network in the authors' code: hidden ReLU layers of d' and d'/2 units.

    q'_i = W_q q_i + b_q, k'_j = W_k k_j + b_k                   (d'; eq. 5 and 6)
    h_ij = relu(W_1 [q'_i; k'_j] + b_1)                          (d'; eq. 7 and 8)
    g_ij = relu(W_2 h_ij + b_2)                                  (floor(d'/2); in the code only)
    scores_ij = w_3 · g_ij + b_3                                 (eq. 8, without a scale)

    All heads share the network. d' is ``reduced_dim``, at least 2; None omits W_q and W_k. Unlike
    in the authors' code, the first unit of each layer is initially positive for every pair, so that
    the initial score is no constant.
    """

    def __init__(self, head_width: int, *, reduced_dim: int | None = None) -> None:
        super().__init__()
        inner = reduced_dim or head_width
        if inner < 2:
            raise ValueError(f"neural_attention_authors: the width is {inner}; expected 2 or more")
        self.query_map: nn.Module = nn.Identity()
        self.key_map: nn.Module = nn.Identity()
        if reduced_dim is not None:
            self.query_map = nn.Linear(head_width, inner)
            self.key_map = nn.Linear(head_width, inner)
        units = inner // 2
        self.first_weight = uniform(inner, 2 * inner, fan=2 * inner)
        self.first_bias = uniform(inner, fan=2 * inner)
        self.second_weight = uniform(units, inner, fan=inner)
        self.second_bias = uniform(units, fan=inner)
        self.third_weight = uniform(1, units, fan=units)
        self.third_bias = uniform(1, fan=units)
        with torch.no_grad():
            self.first_bias[0] = 2.0
            self.second_weight[0].abs_()
            self.second_bias[0].abs_()

    def forward(self, query: Query, key: Key) -> Scores:
        layers = self.second_weight, self.second_bias, self.third_weight, self.third_bias
        return sum_layers(*self.halves(query, key), *layers)

    def halves(self, query: Query, key: Key) -> tuple[Tensor, Tensor]:
        """Return the parts of the first layer's input that depend on the query and on the key."""
        query_part, key_part = self.first_weight.chunk(2, dim=1)
        left = F.linear(self.query_map(query), query_part, self.first_bias)
        return left, F.linear(self.key_map(key), key_part)
