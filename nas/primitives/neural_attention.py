"""Neural Attention: a small network scores every pair of query and key.

"Neural Attention", eq. 3-9. Readings where the paper is silent or inconsistent: the weights
W_h[i,j] are shared by all positions, as its parameter counts and generation demand; biases are
present; the scale 1/sqrt(d) of eq. 7 is an option, off by default as in the authors' code.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive
from nas.primitives.domains import Choice, Flag, Integer
from nas.primitives.hidden_units import reduce_units, split_linear


def _macs(sizes: Sizes, params: Params) -> int:
    n, w, hidden = sizes.tokens, sizes.width, params["width"]
    inner = params["reduced_dim"] or w
    reduction = 2 * n * w * inner if params["reduced_dim"] else 0
    return int(sizes.heads * (reduction + 2 * n * inner * hidden + n**2 * hidden))


@primitive(
    "neural_attention",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="MLP_{width}({query}; {key})",
    source="Neural Attention, eq. 3-9",
    parameters={
        "reduced_dim": Integer(default=None, low=2, high=4096, nullable=True),
        "width": Integer(default=16, low=1, high=4096),
        "activation": Choice(default="gelu", values=("gelu", "relu", "silu", "tanh")),
        "scale": Flag(default=False),
        "per_head": Flag(default=False),
    },
    macs=_macs,
)
class NeuralAttention(nn.Module):
    """A network with one hidden layer over the query and the key side by side.

    scores_ij = s (a · act(W [q'_i; k'_j] + b) + c), with q' = q and k' = k, or both reduced by a
    linear map to ``reduced_dim``; s = 1, or under ``scale`` that of the scaled dot product. One
    network for all heads, or one each under ``per_head``. W [q; k] is computed as W_q q + W_k k:
    no tensor of all pairs and features exists.

    With ReLU the first unit starts at bias 2, in reach of every pair: no score is a dead
    constant at the start (the authors' start, for 40 % of seeds at d' = 2, is).

    MACs are those of the mechanism: the linear maps, and h n² m for a, whatever form the sum has.
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
            self.query_weight = self._start(*group, reduced_dim, head_width, fan=head_width)
            self.query_bias = self._start(*group, reduced_dim, fan=head_width)
            self.key_weight = self._start(*group, reduced_dim, head_width, fan=head_width)
            self.key_bias = self._start(*group, reduced_dim, fan=head_width)
        self.hidden_weight = self._start(*group, width, 2 * self.inner, fan=2 * self.inner)
        self.hidden_bias = self._start(*group, width, fan=2 * self.inner)
        self.out_weight = self._start(*group, width, fan=width)
        self.out_bias = self._start(*group, fan=width)
        if activation == "relu":
            with torch.no_grad():
                self.hidden_bias[..., 0] = 2.0

    def _start(self, *shape: int, fan: int) -> nn.Parameter:
        """A parameter that starts as those of nn.Linear do."""
        bound = fan**-0.5
        return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        if self.is_reduced:
            query = split_linear(query, self.query_weight, self.query_bias)
            key = split_linear(key, self.key_weight, self.key_bias)
        left = split_linear(query, self.hidden_weight[..., : self.inner], self.hidden_bias)
        right = split_linear(key, self.hidden_weight[..., self.inner :])
        scores = reduce_units(left, right, self.out_weight, self.activation)
        return (scores + self.out_bias.to(scores.dtype).view(-1, 1, 1)) * self.scale
