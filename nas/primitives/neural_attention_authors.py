"""Neural Attention as its authors' code has it, the form behind the paper's parameter counts."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.primitives.base import Params, Role, Sizes, primitive
from nas.primitives.domains import Integer


def _macs(sizes: Sizes, params: Params) -> int:
    n, w = sizes.tokens, sizes.width
    inner = params["reduced_dim"] or w
    reduction = 2 * n * w * inner if params["reduced_dim"] else 0
    pairs = n**2 * (inner * (inner // 2) + inner // 2)
    return int(sizes.heads * (reduction + 2 * n * inner**2 + pairs))


@primitive(
    "neural_attention_authors",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="MLP₃({query}; {key})",
    source="Neural Attention, table 1, and its published code",
    parameters={"reduced_dim": Integer(default=None, low=2, high=4096, nullable=True)},
    macs=_macs,
)
class NeuralAttentionAuthors(nn.Module):
    """Two ReLU layers, of d' and d'/2 units, and a linear one over the query and the key.

    scores_ij = w3 · relu(W2 relu(W1 [q'_i; k'_j] + b1) + b2) + b3, without a scale; q' and k' are
    reduced to d' = ``reduced_dim``, or the operands themselves (d' = w). Shared by the heads.

    Shapes are the authors', the start is not: at d' = 2 theirs is a constant for 40 % of the
    seeds. The first unit of each layer starts where it is positive for every pair.

    Memory holds n² (d' + d'/2) numbers a head: the second layer sees pairs.
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

    def forward(
        self, query: Float[Tensor, "b h q w"], key: Float[Tensor, "b h k w"]
    ) -> Float[Tensor, "b h q k"]:
        query_part, key_part = self.first.weight.chunk(2, dim=1)
        left = F.linear(self.query_map(query), query_part, self.first.bias)
        right = F.linear(self.key_map(key), key_part)
        pairs = F.relu(left.unsqueeze(3) + right.unsqueeze(2))
        return self.third(F.relu(self.second(pairs))).squeeze(-1)
