"""The delta rule, as a triangular system in place of a recurrence over the tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.gated import decayed_products
from nas.genome.primitives.masks import drop_padding
from nas.genome.primitives.shapes import Gates, Mask, Tokens


def unrolled(overlap: Float[Tensor, "b h n n"], tokens: Tokens) -> Tokens:
    """Return u with u_i + sum_{j < i} overlap_ij u_j = tokens_i."""
    # Autocast returns 16 bits from products; the solver accepts 32 and 64.
    lower = overlap.to(tokens.dtype).tril(-1)
    return torch.linalg.solve_triangular(lower, tokens, upper=False, unitriangular=True)


def without_erased(erase: Tokens, keys: Tokens, values: Tokens, gates: Gates | None) -> Tokens:
    """Return u with u_i + sum_{j < i} (e_i D_ij·k_j) u_j = v_i, from all pairs of tokens.

    D_ij is the product of the gates after token j up to i.
    """
    products = erase @ keys.mT if gates is None else decayed_products(erase, keys, gates, gates)
    return unrolled(products, values)


@primitive(
    "delta",
    "keys: tokens[h,w], tokens: tokens[h,w] -> tokens[h,w]",
    "keys: tokens[h,w], tokens: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    "keys: tokens[h,w], tokens: tokens[h,w], gates: feature_gates[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="delta({keys}, {tokens})",
    source="Yang et al. 2024 (DeltaNet, arXiv 2406.06484); gates: Gated DeltaNet "
    "(2412.06464); gates of features: Kimi Delta Attention (2510.26692)",
    state=lambda sizes, params: sizes.heads * (sizes.width**2 + sizes.gates),
)
class Delta(nn.Module):
    """The delta rule: each value minus what the state already returns for its key.

    u_t = b_t (v_t - k_t diag(f_t) S_{t-1}) and S_t = diag(f_t) S_{t-1} + k_t^T u_t, with keys k of
    unit length, strengths b_t = sigmoid(w_h·x_t + c_h), and forget gates f_t (1 without gates). The
    result u, with D_ij the product of the gates after token j up to i, solves

        u_i + b_i sum_{j < i} (k_i D_ij·k_j) u_j = b_i v_i

    Linear attention over the same keys and gates, with u as values, completes DeltaNet.
    """

    needs_all_tokens = True
    reads_hidden_tokens = True

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
        erase, keys, values = self._operands(keys, tokens, x, mask)
        return self.solve(erase, keys, values, gates).to(tokens.dtype)

    def _operands(
        self, keys: Tokens, tokens: Tokens, x: Float[Tensor, "b n d"], mask: Mask = None
    ) -> tuple[Tokens, ...]:
        exact = torch.promote_types(tokens.dtype, torch.float32)
        strength = drop_padding(torch.sigmoid(self.strength(x)).mT[..., None], mask).to(exact)
        keys = F.normalize(keys.to(exact), dim=-1)
        return strength * keys, keys, strength * tokens.to(exact)

    def solve(self, erase: Tokens, keys: Tokens, values: Tokens, gates: Gates | None) -> Tokens:
        return without_erased(erase, keys, values, gates)
