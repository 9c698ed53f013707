"""Relatives of the delta rule: separate keys to erase, softmax, least squares, preconditioning.

Each solves a triangular or symmetric system in place of a recurrence over the tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler.kernels import faster
from nas.compiler.kernels.gated import solve_in_chunks
from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.gated import Scan, unrolled, without_erased
from nas.genome.primitives.tensors import Gates, Mask, Tokens, drop_padding


@primitive(
    "erase_delta",
    "erase: tokens[h,w], keys: tokens[h,w], tokens: tokens[h,w] -> tokens[h,w]",
    "erase: tokens[h,w], keys: tokens[h,w], tokens: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    "erase: tokens[h,w], keys: tokens[h,w], tokens: tokens[h,w], gates: feature_gates[h,w] "
    "-> tokens[h,w]",
    role=Role.POSITION,
    notation="delta({erase}, {keys}, {tokens})",
    source="Gated DeltaNet-2 2026 (arXiv 2605.22791); a scaled key: Hu et al. 2025 (Comba, arXiv "
    "2506.02475); a preconditioned key: arXiv 2604.21100",
    state=lambda sizes, params: sizes.heads * (sizes.width**2 + sizes.gates),
)
class EraseDelta(nn.Module):
    """The delta rule with different keys to read what is erased and to write.

    u_t = v_t - e_t diag(f_t) S_{t-1} and S_t = diag(f_t) S_{t-1} + k_t^T u_t, with keys e of what
    is erased, keys k, values v, and forget gates f (1 without gates). The result is u; keys are
    taken as they are. Linear attention over the keys k and the values u is the readout.
    """

    needs_all_tokens = True
    has_parameters = False

    def forward(
        self,
        erase: Tokens,
        keys: Tokens,
        tokens: Tokens,
        gates: Gates | None = None,
        mask: Mask = None,
    ) -> Tokens:
        # A padding token neither erases nor writes.
        erase, values = drop_padding(erase, mask), drop_padding(tokens, mask)
        exact = torch.promote_types(tokens.dtype, torch.float32)
        return self.solve(erase, keys, values.to(exact), gates).to(tokens.dtype)

    def solve(self, erase: Tokens, keys: Tokens, values: Tokens, gates: Gates | None) -> Tokens:
        return without_erased(erase, keys, values, gates)


@faster
class FastEraseDelta(EraseDelta):
    """The delta rule with separate keys to erase in chunks, for long sequences."""

    is_traceable = True

    def solve(self, erase: Tokens, keys: Tokens, values: Tokens, gates: Gates | None) -> Tokens:
        return solve_in_chunks(erase, keys, values, gates)


@primitive(
    "softmax_delta",
    "query: tokens[h,w], keys: tokens[h,w], tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="delta_softmax({query}, {keys}, {tokens})",
    source="Zhong et al. 2025 (DeltaFormer, arXiv 2505.19488)",
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
