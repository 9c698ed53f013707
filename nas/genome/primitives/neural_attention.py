"""Neural Attention: a small network scores every pair of query and key.

"Neural Attention", section 1.2 (eq. 3 and 4, one pair) and section 3 (eq. 5-9, a sequence). Beside
the readings of the mechanism (nas/genome/mechanisms/neural.py):

- Eq. 8 gives each pair of positions weights of its own, but table 1 has room for one network only
  (47.052, 47.055 and 47.062 million for d' of 2, 16 and 64), and no sequence could be longer than
  those of the training.
- Under GELU no unit is dead. The identity is no choice: it makes scores a_i + b_j, of which softmax
  keeps b_j, and attention no longer depends on the query.
- Additive attention is no sum of two scalars, each from one vector (section 2): Bahdanau's score is
  eq. 4 with tanh and without biases.
- O(n²) is the dot product's time too (section 3.2), but a head takes n² (2d'm + m) multiply-adds as
  published, n² m here, against n² d.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nas.genome.primitives.base import Params, Role, Sizes, primitive
from nas.genome.primitives.domains import Flag, Integer
from nas.genome.primitives.hidden_units import (
    ACTIVATION,
    REDUCED_DIM,
    split_linear,
    sum_units,
    uniform_start,
)
from nas.genome.primitives.shapes import Key, Query, Scores


def _macs(sizes: Sizes, params: Params) -> int:
    n, w, hidden = sizes.both, sizes.width, params["width"]
    inner = params["reduced_dim"] or w
    reduction = n * w * inner if params["reduced_dim"] else 0
    return int(sizes.heads * (reduction + n * inner * hidden + sizes.pairs * hidden))


@primitive(
    "neural_attention",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="MLP_{width}({query}; {key})",
    source="Neural Attention, eq. 3-9",
    parameters={
        "reduced_dim": REDUCED_DIM,
        "width": Integer(default=16, low=1, high=4096),
        "activation": ACTIVATION,
        "scale": Flag(default=False),
        "per_head": Flag(default=False),
    },
    macs=_macs,
    passes=lambda sizes, params: 2 * params["width"],
)
class NeuralAttention(nn.Module):
    """A network with one hidden layer over the query and the key side by side.

    Q' = Q W_q + b_q, K' = K W_k + b_k                          (n x d'; eq. 5 and 6)
    h_ij = act(W_h [q'_i; k'_j] + b_h)                          (m; eq. 3 and 7)
    A_ij = w_a · h_ij + b_a                                     (eq. 4 and 8)
    scores = A, or under ``scale`` A / sqrt(d)                  (inside the softmax of eq. 9)

    W_h is m x 2d', w_a has m numbers: one network for all heads, or one each under ``per_head``.
    W_h [q'; k'] is computed as its two halves, W_hq q' + W_hk k', once a token and not once a
    pair: no tensor of all pairs and features exists.

    With ReLU the first unit starts at bias 2, in reach of every pair: no score is a dead
    constant at the start (the authors' start, for 40 % of seeds at d' = 2, is).

    MACs are those of the mechanism: the linear maps, and h n² m for w_a, whatever form the sum
    has.

    Args:
        rank: d, the width whose root divides the scores under ``scale``.
        reduced_dim: d', two or more; None leaves out W_q and W_k (eq. 5 and 6), d' is then the
            head width.
        width: m, units of the hidden layer, one or more.
        activation: act; gelu, relu, silu or tanh.
    """

    def __init__(
        self,
        heads: int,
        head_width: int,
        rank: int,
        *,
        reduced_dim: int | None = None,
        width: int = 16,
        activation: str = "gelu",
        scale: bool = False,
        per_head: bool = False,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.scale = rank**-0.5 if scale else 1.0
        self.inner = reduced_dim or head_width
        self.is_reduced = reduced_dim is not None
        group = (heads,) if per_head else ()
        if reduced_dim is not None:
            self.query_weight = uniform_start(*group, reduced_dim, head_width, fan=head_width)
            self.query_bias = uniform_start(*group, reduced_dim, fan=head_width)
            self.key_weight = uniform_start(*group, reduced_dim, head_width, fan=head_width)
            self.key_bias = uniform_start(*group, reduced_dim, fan=head_width)
        self.hidden_weight = uniform_start(*group, width, 2 * self.inner, fan=2 * self.inner)
        self.hidden_bias = uniform_start(*group, width, fan=2 * self.inner)
        self.out_weight = uniform_start(*group, width, fan=width)
        self.out_bias = uniform_start(*group, fan=width)
        if activation == "relu":
            with torch.no_grad():
                self.hidden_bias[..., 0] = 2.0

    def forward(self, query: Query, key: Key) -> Scores:
        return sum_units(*self.units(query, key), self.activation)

    def units(self, query: Query, key: Key) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The two halves of the hidden layer, and what sums its units."""
        if self.is_reduced:
            query = split_linear(query, self.query_weight, self.query_bias)
            key = split_linear(key, self.key_weight, self.key_bias)
        left = split_linear(query, self.hidden_weight[..., : self.inner], self.hidden_bias)
        right = split_linear(key, self.hidden_weight[..., self.inner :])
        return left, right, self.out_weight * self.scale, self.out_bias * self.scale
