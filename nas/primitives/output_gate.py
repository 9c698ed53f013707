"""A gate read from the block's input."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive


def _macs(sizes: Sizes, params: Params) -> int:
    return sizes.tokens * sizes.dim * sizes.heads * sizes.width


@primitive(
    "output_gate",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.GATE,
    notation="{tokens} ⊙ σ(W x)",
    source="Qiu et al. 2025 (Gated Attention, arXiv 2505.06708), eq. 5",
    macs=_macs,
)
class OutputGate(nn.Module):
    """Features of every head scaled by a gate projected from the block's input.

    out_i = tokens_i * sigmoid(W x_i), elementwise, W a map of its own for every head
    """

    def __init__(self, dim: int, heads: int, width: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.gate = nn.Linear(dim, heads * width, bias=bias)

    def forward(
        self, tokens: Float[Tensor, "b h n w"], x: Float[Tensor, "b n d"]
    ) -> Float[Tensor, "b h n w"]:
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return tokens * torch.sigmoid(gate)
