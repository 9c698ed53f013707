"""What forget gates do to scores, tokens and sums of tokens, and the delta rule.

Gates arrive as sums c of their logarithms (module ``gates``): exp(-|c_i - c_j|) is the product of
the gates between two tokens.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Role, always, primitive
from nas.genome.primitives.domains import Choice
from nas.genome.primitives.products import unit_length
from nas.genome.primitives.signs import lowered, sign_of_product
from nas.genome.primitives.tensors import (
    Gates,
    Inputs,
    Key,
    KeyGates,
    Mask,
    Query,
    QueryGates,
    Scores,
    State,
    Sums,
    Tokens,
    Values,
    drop_padding,
)


@primitive(
    "decay",
    "scores: scores[h], gates: gates[h] -> scores[h]",
    role=Role.ADJUST,
    notation="({scores} + log Π{gates})",
    source="Lin et al. 2025 (FoX, arXiv 2503.02130); both directions: symmetric, ours",
    sign=lowered,
)
class Decay(nn.Module):
    """Scores plus the logarithm of the product of all forget gates between query and key.

    out_ij = scores_ij - |c_i - c_j|, with the sums c of the gates' logarithms
    """

    has_parameters = False

    def forward(self, scores: Scores, query: QueryGates, key: KeyGates) -> Scores:
        return scores + log_decay(query, key.mT).to(scores.dtype)


def log_decay(
    query_gates: Float[Tensor, "..."], key_gates: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Return -|c_i - c_j|, the logarithm of the product of the gates between a query i and a key j.

    Where both sums are equal, for example because gates round to 1, the derivative is that of
    c_i - c_j: the absolute value's derivative, zero, would not train these gates.
    """
    difference = query_gates - key_gates
    return torch.where(difference > 0, -difference, difference)


def decayed_products(
    query: Query, key: Key, query_gates: QueryGates, key_gates: KeyGates
) -> Scores:
    """Return sum_u q_iu k_ju exp(-|c_iu - c_ju|) over the features u, for queries i and keys j."""
    key = key.to(query.dtype)  # keys made of gates are in float32
    if query_gates.shape[-1] == 1:
        decay = torch.exp(log_decay(query_gates, key_gates.mT))
        return query @ key.mT * decay.to(query.dtype)
    decay = torch.exp(log_decay(query_gates[:, :, :, None], key_gates[:, :, None]))
    rows = query[:, :, :, None] * decay.to(query.dtype)
    return torch.einsum("bhqkw,bhkw->bhqk", rows, key)


@primitive(
    "gated_product",
    "query: tokens[h,w], key: tokens[h,w], gates: gates[h] -> scores[h]",
    "query: tokens[h,w], key: tokens[h,w], gates: feature_gates[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="{query}·Π{gates}·{key}ᵀ/√d",
    source="gates of a head: Dao and Gu 2024 (arXiv 2405.21060); of a feature: Yang et "
    "al. 2024 (GLA, arXiv 2312.06635)",
    sign=lambda operands: sign_of_product(operands[:2]),
)
class GatedProduct(nn.Module):
    """Scaled dot products in which each feature is multiplied by all gates between query and key.

    scores_ij = sum_u q_iu k_ju exp(-|c_iu - c_ju|) / sqrt(rank), where c_iu is the sum of the
    logarithms of the gates up to token i, of feature u or of the head. Used as weights, the scores
    give gated linear attention with the state S_t = diag(f_t) S_{t-1} + k_t^T v_t.
    """

    has_parameters = False

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.scale = rank**-0.5

    def forward(
        self, query: Query, key: Key, query_gates: QueryGates, key_gates: KeyGates
    ) -> Scores:
        return decayed_products(query * self.scale, key, query_gates, key_gates)


@primitive(
    "write_gate",
    "tokens: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    "tokens: tokens[h,w], gates: feature_gates[h,w] -> tokens[h,w]",
    "gates: feature_gates[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="write_{form}",
    source="complement: Qin et al. 2024 (HGRN2, arXiv 2404.07904); rate: Dao and Gu 2024 "
    "(Mamba-2, arXiv 2405.21060)",
    parameters={"form": Choice(default="complement", values=("complement", "rate"))},
    history=lambda params: 0,
)
class WriteGate(nn.Module):
    """Tokens times a function of the forget gate f of the token; without tokens, the factor itself.

    complement: 1 - f, so that a state forgets as much as it writes. rate: -log f, the step size of
    Mamba-2 times the rate of the head.
    """

    needs_all_tokens = True
    has_parameters = False

    def __init__(self, *, form: str = "complement") -> None:
        super().__init__()
        self.is_rate = form == "rate"

    def forward(self, *operands: Tensor) -> Tokens:
        *tokens, gates = operands
        logarithms = gates - F.pad(gates, (0, 0, 1, 0))[:, :, :-1]
        written = -logarithms if self.is_rate else -torch.expm1(logarithms)
        return tokens[0] * written.to(tokens[0].dtype) if tokens else written


def continue_scan(
    scan: Scan, state: Float[Tensor, "b h 1 w"] | None, tokens: Tokens, gates: Gates
) -> tuple[Tokens, Float[Tensor, "b h 1 w"]]:
    """Return ``scan(tokens, gates)`` after the last result before them, and the new last result."""
    out = scan(tokens.to(gates.dtype), gates)
    out = out if state is None else out + torch.exp(gates) * state
    return out.to(tokens.dtype), out[:, :, -1:].clone()


@primitive(
    "scan",
    "tokens: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    "tokens: tokens[h,w], gates: feature_gates[h,w] -> tokens[h,w]",
    role=Role.AGGREGATE,
    notation="scan({tokens}, {gates})",
    source="Qin et al. 2023 (HGRN, NeurIPS); in parallel: Hillis and Steele 1986",
    state=lambda sizes, params: sizes.heads * sizes.width,
    recur=continue_scan,
    is_featurewise=always,
)
class Scan(nn.Module):
    """The recurrence out_t = f_t out_{t-1} + tokens_t of each feature, with forget gates f.

    A parallel prefix sum: step s = 0, 1, ... adds to each token the partial sum of the token 2^s
    places earlier, times the gates in between.
    """

    needs_all_tokens = True
    reads_hidden_tokens = True
    has_parameters = False

    def forward(self, tokens: Tokens, gates: Gates, mask: Mask = None) -> Tokens:
        out, reach = drop_padding(tokens, mask).to(gates.dtype), 1
        if torch.compiler.is_compiling():  # a graph for any number of tokens has no loop over them
            return self._by_pairs(out, gates).to(tokens.dtype)
        while reach < max(out.shape[2], 2):  # at least once: traces of costs need the gates
            kept = torch.exp(gates[:, :, reach:] - gates[:, :, :-reach])
            later = out[:, :, reach:] + kept * out[:, :, :-reach]
            out, reach = torch.cat((out[:, :, :reach], later), dim=2), 2 * reach
        return out.to(tokens.dtype)

    def _by_pairs(self, tokens: Tokens, gates: Gates) -> Tokens:
        count = tokens.shape[2]
        later = torch.ones(count, count, dtype=torch.bool, device=tokens.device).triu(1)
        shares = log_decay(gates[:, :, :, None], gates[:, :, None])
        kept = shares.masked_fill(later[:, :, None], -torch.inf).exp()
        return (kept * tokens[:, :, None]).sum(dim=3)


def unrolled(
    overlap: Float[Tensor, "... n n"], tokens: Float[Tensor, "... n w"]
) -> Float[Tensor, "... n w"]:
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


def empty_state(keys: Key, values: Values) -> State:
    """Return the state before the first token, in float32 at least."""
    exact = torch.promote_types(values.dtype, torch.float32)
    return values.new_zeros(*keys.shape[:2], keys.shape[3], values.shape[3], dtype=exact)


def read_state(state: State, queries: Query, gates: QueryGates) -> Sums:
    """Return q_i diag(c_i) S for each query q_i, with the product c_i of the gates up to i."""
    return (queries * torch.exp(gates)).to(state.dtype) @ state


def next_state(state: State, keys: Key, values: Values, gates: KeyGates) -> State:
    """Return the last of the states S_t = diag(f_t) S_{t-1} + k_t^T v_t, with forget gates f."""
    last = gates[:, :, -1:]
    written = (keys * torch.exp(last - gates)).to(state.dtype).mT @ values.to(state.dtype)
    return torch.exp(last).mT * state + written


def continue_delta(
    rule: Delta, state: State | None, keys: Tokens, tokens: Tokens, *gates: Gates, x: Inputs
) -> tuple[Tokens, State]:
    """Return ``rule(keys, tokens, *gates, x=x)`` after earlier tokens' state, and the new state."""
    erase, keys, values = rule.operands(keys, tokens, x, None)
    state = empty_state(keys, values) if state is None else state
    passed = gates[0] if gates else torch.zeros_like(keys[..., :1])
    values = values - read_state(state, erase, passed)
    out = rule.solve(erase, keys, values, gates[0] if gates else None)
    return out.to(tokens.dtype), next_state(state, keys, out, passed)


@primitive(
    "delta",
    "keys: tokens[h,w], tokens: tokens[h,w] -> tokens[h,w]",
    "keys: tokens[h,w], tokens: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    "keys: tokens[h,w], tokens: tokens[h,w], gates: feature_gates[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="delta({keys}, {tokens})",
    source="Yang et al. 2024 (DeltaNet, arXiv 2406.06484); gates: Gated DeltaNet "
    "(2412.06464); gates of features: Kimi Delta Attention (2510.26692)",
    state=lambda sizes, params: sizes.heads * sizes.width**2,
    recur=continue_delta,
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
        x: Inputs,
        mask: Mask = None,
    ) -> Tokens:
        return self.solve(*self.operands(keys, tokens, x, mask), gates).to(tokens.dtype)

    def operands(
        self, keys: Tokens, tokens: Tokens, x: Inputs, mask: Mask
    ) -> tuple[Tokens, Tokens, Tokens]:
        """Return b_i k_i, k_i and b_i v_i, in float32 at least."""
        exact = torch.promote_types(tokens.dtype, torch.float32)
        strength = drop_padding(torch.sigmoid(self.strength(x)).mT[..., None], mask).to(exact)
        keys = unit_length(keys.to(exact))
        return strength * keys, keys, strength * tokens.to(exact)

    def solve(self, erase: Tokens, keys: Tokens, values: Tokens, gates: Gates | None) -> Tokens:
        return without_erased(erase, keys, values, gates)
