"""Neural Attention to the letter: every pair of positions has a network of its own.

"Neural Attention", eq. 5-9 and appendix A ("every attention score is calculated using its own
unique set of learnable parameters"). That is n²(2d'm + m) parameters, 84 million at the paper's
n = 1,024, d' = 2 and m = 16, in a model of 47 million; and the weights end where the training's
sequences ended. ``neural_attention`` has one network for all pairs.
"""

from __future__ import annotations

import torch
from torch import nn

from nas.genome.primitives.base import Params, Role, Sizes, primitive
from nas.genome.primitives.domains import Flag, Integer
from nas.genome.primitives.hidden_units import ACTIVATION, REDUCED_DIM, activate, uniform_start
from nas.genome.primitives.shapes import Key, Query, Scores


def _macs(sizes: Sizes, params: Params) -> int:
    n, w, hidden = sizes.tokens, sizes.width, params["width"]
    inner = params["reduced_dim"] or w
    reduction = 2 * n * w * inner if params["reduced_dim"] else 0
    return int(sizes.heads * (reduction + sizes.pairs * (2 * inner * hidden + hidden)))


@primitive(
    "neural_attention_per_position",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="MLP[i,j]_{width}({query}; {key})",
    source="Neural Attention, eq. 5-9",
    parameters={
        "tokens": Integer(default=65, low=1, high=4096),
        "reduced_dim": REDUCED_DIM,
        "width": Integer(default=16, low=1, high=4096),
        "activation": ACTIVATION,
        "scale": Flag(default=False),
    },
    macs=_macs,
    # Four times those of the shared network: the two products of a unit differ in layout.
    passes=lambda sizes, params: 8 * params["width"],
)
class NeuralAttentionPerPosition(nn.Module):
    """A network for every pair of positions, over the query and the key side by side.

    Q' = Q W_q, K' = K W_k                             (n x d'; eq. 5 and 6)
    C_ij = [Q'_i; K'_j]                                (n x n x 2d'; eq. 7)
    A_ij = W_a[i,j] act(W_h[i,j] C_ij + b_h[i,j]) + b_a[i,j]                          (eq. 8)
    scores = A, or under ``scale`` A / sqrt(d), of which the weights are the softmax  (eq. 9)

    W_h is n x n x m x 2d' and W_a is n x n x m. Readings where the paper is silent: biases are
    present ("used in the implementation", section 3); the heads share all weights; the scale is
    off, as in the authors' code; positions count from the first token of a call, so that fewer
    tokens use the leading block. W_h C is computed as its two halves, a unit at a time: no C
    exists, though training keeps the hidden layer, n² m numbers a head.

    Args:
        tokens: the largest number of tokens, n; MACs are those of the tokens that come.
        reduced_dim: d', two or more; None leaves out W_q and W_k, and d' is the head width.
        width: m, the units of each hidden layer.

    Raises:
        ValueError: n²(2d'm + m) is above ``budget``; or a sequence is longer than n.
    """

    needs_all_tokens = True
    budget = 2**24
    """Weights that one layer may hold: 64 MiB, and four times that with AdamW's state."""

    def __init__(
        self,
        head_width: int,
        rank: int,
        *,
        tokens: int = 65,
        reduced_dim: int | None = None,
        width: int = 16,
        activation: str = "gelu",
        scale: bool = False,
    ) -> None:
        super().__init__()
        inner = reduced_dim or head_width
        self._check_budget(tokens, inner, width)
        self.activation = activation
        self.scale = rank**-0.5 if scale else 1.0
        self.query_map: nn.Module = nn.Identity()
        self.key_map: nn.Module = nn.Identity()
        if reduced_dim is not None:
            self.query_map = nn.Linear(head_width, inner)
            self.key_map = nn.Linear(head_width, inner)
        self.hidden_weight = uniform_start(tokens, tokens, width, 2 * inner, fan=2 * inner)
        self.hidden_bias = uniform_start(tokens, tokens, width, fan=2 * inner)
        self.out_weight = uniform_start(tokens, tokens, width, fan=width)
        self.out_bias = uniform_start(tokens, tokens, fan=width)
        if activation == "relu":
            with torch.no_grad():
                self.hidden_bias[..., 0] = 2.0  # in reach of every pair: no score is dead

    def _check_budget(self, tokens: int, inner: int, width: int) -> None:
        count = tokens**2 * (2 * inner * width + width)
        if count > self.budget:
            raise ValueError(
                f"neural_attention_per_position: tokens {tokens}, d' {inner} and width {width} "
                f"make {count:,} weights; expected at most {self.budget:,}: lower tokens, "
                "reduced_dim or width, or use neural_attention, whose pairs share one network"
            )

    def forward(self, query: Query, key: Key) -> Scores:
        rows, columns, built = query.shape[2], key.shape[2], self.out_bias.shape[0]
        if max(rows, columns) > built:
            raise ValueError(
                f"neural_attention_per_position: {max(rows, columns)} tokens came; expected at "
                f"most the {built} it has weights for: build it with more tokens"
            )
        query, key = self.query_map(query), self.key_map(key)
        scores = self.out_bias[:rows, :columns]
        units = (
            self.hidden_weight.unbind(2),
            self.hidden_bias.unbind(2),
            self.out_weight.unbind(2),
        )
        for weight, bias, out in zip(*units, strict=True):
            left, right = weight[:rows, :columns].chunk(2, dim=-1)
            inner = torch.einsum("bhqi,qki->bhqk", query, left)
            inner = inner + torch.einsum("bhki,qki->bhqk", key, right)
            inner = inner + bias[:rows, :columns].to(inner.dtype)
            active = activate(inner, self.activation)
            scores = torch.addcmul(scores, active, out[:rows, :columns])
        return scores * self.scale
