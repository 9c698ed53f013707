"""The delta rule: each value minus what the state already returns for its key."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, pair_macs, primitive
from nas.genome.primitives.gated import decayed_products
from nas.genome.primitives.masks import drop_padding
from nas.genome.primitives.shapes import Gates, Mask, Tokens


@primitive(
    "delta",
    "keys: tokens[h,w], tokens: tokens[h,w] -> tokens[h,w]",
    "keys: tokens[h,w], tokens: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    "keys: tokens[h,w], tokens: tokens[h,w], gates: feature_gates[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="delta({keys}, {tokens})",
    source="Yang et al. 2024 (DeltaNet, arXiv 2406.06484); gates: Gated DeltaNet "
    "(2412.06464); gates of features: Kimi Delta Attention (2510.26692)",
    macs=lambda sizes, params: (
        sizes.tokens * sizes.dim * sizes.heads
        + pair_macs(sizes, params)
        + sizes.heads * sizes.width * sizes.tokens * (sizes.tokens - 1) // 2
    ),
    state=lambda sizes, params: sizes.heads * (sizes.width**2 + sizes.gates),
    scale_free=("keys",),
)
class Delta(nn.Module):
    """The delta rule: each value minus what the state already returns for its key.

    u_t = b_t (v_t - k_t diag(f_t) S_{t-1}) and S_t = diag(f_t) S_{t-1} + k_t^T u_t, with keys k of
    unit length, strengths b_t = sigmoid(w_h·x_t + c_h), and forget gates f_t (1 without gates). The
    result is u. With D_ij the product of the gates after token j up to i, it solves the triangular
    system

        u_i + b_i sum_{j < i} (k_i D_ij·k_j) u_j = b_i v_i

    Linear attention over the same keys of unit length, with u as values, completes these models:
    DeltaNet without gates, Gated DeltaNet with gates of heads, and Kimi Delta Attention with gates
    of features. With gates the linear attention is gated by the same gates.
    """

    needs_all_tokens = True

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.strength = nn.Linear(dim, heads)

    def forward(
        self,
        keys: Tokens,
        tokens: Tokens,
        gates: Gates | None = None,
        *,
        x: Float[Tensor, "b n d"],
        mask: Mask = None,
    ) -> Tokens:
        exact = torch.promote_types(tokens.dtype, torch.float32)
        strength = drop_padding(torch.sigmoid(self.strength(x)).mT[..., None], mask).to(exact)
        keys = F.normalize(keys.to(exact), dim=-1)
        return self.solve(keys, tokens.to(exact), gates, strength).to(tokens.dtype)

    def advance(
        self,
        state: tuple[Tensor, ...] | None,
        keys: Tokens,
        tokens: Tokens,
        gates: Gates | None = None,
        *,
        x: Float[Tensor, "b n d"],
    ) -> tuple[Tokens, tuple[Tensor, ...]]:
        exact = torch.promote_types(tokens.dtype, torch.float32)
        strength = torch.sigmoid(self.strength(x)).mT[..., None].to(exact)
        keys, values = F.normalize(keys.to(exact), dim=-1), tokens.to(exact)
        gates = torch.zeros_like(strength) if gates is None else gates
        if state is not None:
            total, before = state
            values = values - (keys * torch.exp(gates - before)) @ total
        out = self.solve(keys, values, gates, strength)
        last = gates[:, :, -1:]
        after = (keys * torch.exp(last - gates)).mT @ out
        if state is not None:
            after = after + torch.exp(last - before).mT * total
        return out.to(tokens.dtype), (after, last)

    def solve(
        self, keys: Tokens, values: Tokens, gates: Gates | None, strength: Float[Tensor, "b h n 1"]
    ) -> Tokens:
        """Return u with u_i + b_i sum_{j < i} (k_i D_ij·k_j) u_j = b_i v_i."""
        if gates is None:
            products = keys @ keys.mT
        else:
            products = decayed_products(keys, keys, gates, gates).to(strength.dtype)
        overlap = strength * products.tril(-1)
        return torch.linalg.solve_triangular(
            overlap, strength * values, upper=False, unitriangular=True
        )
