"""Neural Attention as its authors' code has it, the form behind the paper's parameter counts.

The rows of table 1 differ by what its parameters differ by: 275 at d' = 2, 2,753 at d' = 16 and
10,369 without a reduction, for heads 64 wide. (Its first row differs by more: the neural models
alone have learned positions, 1,024 x 512.)

Not followed: the code's default d', the head width // 32, which is 0, a constant score, below 32
and 3 in the paper's image models (heads of 96, where the text says 64 and d' = 2); its start.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Params, Role, Sizes, primitive
from nas.genome.primitives.hidden_units import REDUCED_DIM
from nas.genome.primitives.shapes import Key, Query, Scores


def _macs(sizes: Sizes, params: Params) -> int:
    n, w = sizes.both, sizes.width
    inner = params["reduced_dim"] or w
    reduction = n * w * inner if params["reduced_dim"] else 0
    pairs = sizes.pairs * (inner * (inner // 2) + inner // 2)
    return int(sizes.heads * (reduction + n * inner**2 + pairs))


def _passes(sizes: Sizes, params: Params) -> int:
    inner = params["reduced_dim"] or sizes.width
    return int(3 * (inner + inner // 2))


def sum_layers(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    second: Float[Tensor, "g m"],
    bias: Float[Tensor, "g"],
    third: Float[Tensor, "1 g"],
    shift: Float[Tensor, "1"],
) -> Scores:
    """Scores of pairs by two hidden layers, of which the first is split between query and key."""
    hidden = F.relu(left.unsqueeze(3) + right.unsqueeze(2))
    return F.linear(F.relu(F.linear(hidden, second, bias)), third, shift).squeeze(-1)


@primitive(
    "neural_attention_authors",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="MLP₃({query}; {key})",
    source="Neural Attention, table 1, and its published code",
    parameters={"reduced_dim": REDUCED_DIM},
    macs=_macs,
    passes=_passes,
)
class NeuralAttentionAuthors(nn.Module):
    """Two ReLU layers, of d' and d'/2 units, and a linear one over the query and the key.

    q'_i = W_q q_i + b_q, k'_j = W_k k_j + b_k                   (d'; eq. 5 and 6)
    h_ij = relu(W_1 [q'_i; k'_j] + b_1)                          (d'; eq. 7 and 8)
    g_ij = relu(W_2 h_ij + b_2)                                  (floor(d'/2); the code's alone)
    scores_ij = w_3 · g_ij + b_3                                 (eq. 8, without a scale)

    W_q, W_k: d' x d_h; W_1: d' x 2d'; W_2: floor(d'/2) x d'; shared by the heads. d' is
    ``reduced_dim``; None leaves out W_q and W_k, and d' = d_h, the head width. b_3 is nothing to
    a softmax; it is kept because it is counted.

    Parameters: 2 (d_h d' + d') + (2d'² + d') + (d' floor(d'/2) + floor(d'/2)) + floor(d'/2) + 1.

    Shapes are the authors', the start is not: at d' = 2 theirs is a constant for 40 % of the
    seeds. The first unit of each layer starts where it is positive for every pair.

    Raises:
        ValueError: d' is below two, which leaves the second layer no unit.
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
        self.first = nn.Linear(2 * inner, inner)
        self.second = nn.Linear(inner, inner // 2)
        self.third = nn.Linear(inner // 2, 1)
        with torch.no_grad():
            self.first.bias[0] = 2.0
            self.second.weight[0].abs_()
            self.second.bias[0].abs_()

    def forward(self, query: Query, key: Key) -> Scores:
        layers = self.second.weight, self.second.bias, self.third.weight, self.third.bias
        return sum_layers(*self.halves(query, key), *layers)

    def halves(self, query: Query, key: Key) -> tuple[Tensor, Tensor]:
        """The first layer, before its activation: the query's part and the key's."""
        query_part, key_part = self.first.weight.chunk(2, dim=1)
        left = F.linear(self.query_map(query), query_part, self.first.bias)
        return left, F.linear(self.key_map(key), key_part)
