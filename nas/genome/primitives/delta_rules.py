"""Relatives of the delta rule: softmax, least squares, Householder maps.

Each solves a triangular or symmetric system in place of a recurrence over the tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, pair_macs, primitive
from nas.genome.primitives.delta import solve_macs, strength_macs, unrolled
from nas.genome.primitives.gated import Scan
from nas.genome.primitives.masks import drop_padding
from nas.genome.primitives.shapes import Gates, Key, Mask, Query, Scores, Tokens


@primitive(
    "softmax_delta",
    "query: tokens[h,w], keys: tokens[h,w], tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="delta_softmax({query}, {keys}, {tokens})",
    source="Zhong et al. 2025 (DeltaFormer, arXiv 2505.19488)",
    macs=lambda sizes, params: pair_macs(sizes, params) + solve_macs(sizes) + strength_macs(sizes),
)
class SoftmaxDelta(nn.Module):
    """Values without what softmax attention over earlier tokens already returns.

    u_i = v_i - b_i sum_{j < i} a_ij u_j, with a_ij the softmax of q_i·k_j / sqrt(w) over the tokens
    j < i, and b_i = w_h·x_i + c_h, initially near 0. Softmax attention over the values u is
    DeltaFormer.
    """

    needs_all_tokens = True

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__()
        self.strength = nn.Linear(dim, heads)
        self.scale = width**-0.5

    def forward(
        self,
        query: Tokens,
        keys: Tokens,
        tokens: Tokens,
        x: Float[Tensor, "b n d"],
        mask: Mask = None,
    ) -> Tokens:
        exact = torch.promote_types(tokens.dtype, torch.float32)
        scores = ((query * self.scale) @ keys.mT).to(exact)
        visible = drop_padding(torch.ones_like(tokens[..., :1]), mask).mT > 0
        earlier = torch.ones_like(scores, dtype=torch.bool).tril(-1) & visible
        # Finite, because the softmax of the first row, which has no key, would be NaN.
        low = torch.finfo(exact).min
        weights = torch.softmax(scores.masked_fill(~earlier, low), dim=-1) * earlier
        strength = self.strength(x).mT[..., None].to(exact)
        return unrolled(strength * weights, tokens.to(exact)).to(tokens.dtype)


@primitive(
    "mesa_query",
    "query: tokens[h,w], keys: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    role=Role.POSITION,
    notation="mesa({query}, {keys})",
    source="von Oswald et al. 2025 (MesaNet, arXiv 2506.05233)",
    macs=lambda sizes, params: (
        sizes.heads * sizes.tokens * (sizes.width * (sizes.width**2 - 1) // 3 + sizes.width**2)
    ),
    state=lambda sizes, params: sizes.heads * (sizes.width**2 + 1),
)
class MesaQuery(nn.Module):
    """Queries that make linear attention the solution of a regularised least squares problem.

    out_t = (H_t + diag(l))^-1 q_t and H_t = f_t H_{t-1} + k_t^T k_t, with keys k, forget gates f,
    and learned l of each feature, at least 0.25 and initially 1. Linear attention with the same
    keys and gates is the readout. The systems are solved exactly; published code approximates them
    by 30 steps of conjugate gradients.
    """

    needs_all_tokens = True

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.ridge = nn.Parameter(torch.full((heads, 1, width), 0.75).expm1().log())
        self.scan = Scan()

    def forward(self, query: Tokens, keys: Tokens, gates: Gates, mask: Mask = None) -> Tokens:
        return self.solved(query, self.scan(squares(drop_padding(keys, mask)), gates))

    def advance(
        self, state: tuple[Tensor, ...] | None, query: Tokens, keys: Tokens, gates: Gates
    ) -> tuple[Tokens, tuple[Tensor, ...]]:
        curvature, after = self.scan.advance(state, squares(keys), gates)
        return self.solved(query, curvature), after

    def solved(self, query: Tokens, curvature: Float[Tensor, "b h n s"]) -> Tokens:
        """Return the solutions of the systems, whose matrices are given without ``ridge``."""
        ridge = F.softplus(self.ridge)[..., None] + 0.25
        diagonal = torch.eye(query.shape[-1], dtype=ridge.dtype, device=query.device) * ridge
        system = curvature.unflatten(-1, (query.shape[-1], -1)) + diagonal
        # The matrices are positive definite; a check for singular ones would wait for a GPU.
        solutions, _ = torch.linalg.solve_ex(system, query.to(system.dtype)[..., None])
        return solutions[..., 0].to(query.dtype)


def squares(keys: Tokens) -> Float[Tensor, "b h n s"]:
    """Return the products of all pairs of features of each token, in float32 at least."""
    exact = keys.to(torch.promote_types(keys.dtype, torch.float32))
    return (exact[..., :, None] * exact[..., None, :]).flatten(-2)


@primitive(
    "precondition",
    "keys: tokens[h,w], curvature: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="precond({keys}, {curvature})",
    source="Preconditioned DeltaNet 2026 (arXiv 2604.21100)",
)
class Precondition(nn.Module):
    """Keys divided by a bounded power of a running sum of their squares.

    out = k 1.5^(-r / (1 + |r|)), r = log(max(a, 0) + 1e-6) - c, with the sums a of each feature and
    a learned c of each head, initially -0.2. The factor lies between 1 / 1.5 and 1.5.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.center = nn.Parameter(torch.full((heads, 1, 1), -0.2))

    def forward(self, keys: Tokens, curvature: Tokens) -> Tokens:
        exact = curvature.to(torch.promote_types(curvature.dtype, torch.float32))
        ratio = torch.log(exact.relu() + 1e-6) - self.center
        factor = 1.5 ** (-ratio / (1.0 + ratio.abs()))
        return (keys * factor).to(keys.dtype)


@primitive(
    "path_product",
    "query: tokens[h,w], key: tokens[h,w], directions: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{query}·ΠH({directions})·{key}ᵀ/√d",
    source="Yang et al. 2025 (PaTH, arXiv 2505.16381)",
    macs=lambda sizes, params: (
        4 * pair_macs(sizes, params)
        + sizes.heads * sizes.tokens**3
        + sizes.heads * sizes.tokens**2 * (sizes.tokens - 1) // 2
        + strength_macs(sizes)
    ),
)
class PathProduct(nn.Module):
    """Scaled dot products through the Householder maps of the tokens after the key.

    scores_ij = q_i H_i H_{i-1} ... H_{j+1} k_j / sqrt(w), H_t = 1 - b_t d_t^T d_t, with directions
    d of unit length and b_t = 2 sigmoid(w_h·x_t + c_h). Later keys j > i, which a causal mask
    hides, are scored without maps.
    """

    needs_all_tokens = True

    def __init__(self, dim: int, heads: int, width: int) -> None:
        super().__init__()
        self.strength = nn.Linear(dim, heads)
        self.scale = width**-0.5

    def forward(
        self,
        query: Query,
        key: Key,
        directions: Tokens,
        x: Float[Tensor, "b n d"],
        mask: Mask = None,
    ) -> Scores:
        exact = torch.promote_types(query.dtype, torch.float32)
        queries, keys = (query * self.scale).to(exact), key.to(exact)
        unit = F.normalize(directions.to(exact), dim=-1)
        strength = 2.0 * torch.sigmoid(self.strength(x)).mT[..., None].to(exact)
        scaled = drop_padding(strength, mask) * unit
        # What the maps between j and i remove from key j, as a sum over the directions.
        removed = unrolled(scaled @ unit.mT, (scaled @ keys.mT).to(exact).tril(-1))
        through = (queries @ unit.mT).tril() @ removed
        return (queries @ keys.mT - through.tril()).to(query.dtype)
