"""Forget gates, and what they do to scores, tokens and sums of tokens.

A forget gate f_t between 0 and 1 says which share of the past remains at token t. A primitive
returns the sums c_t = log f_0 + ... + log f_t, so that exp(c_i - c_j) is the product of the gates
after token j up to token i: the share of token j that remains at token i. Without a causal mask,
exp(-|c_i - c_j|) is the product of the gates between two tokens in either order.

Differences of sums never exceed zero, so that no exponential overflows. Sums are in float32 at
least: 16 bits are too few for sums over long sequences.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome import LABELS
from nas.genome.primitives.base import Role, pair_macs, primitive
from nas.genome.primitives.domains import Choice, Integer
from nas.genome.primitives.factors import (
    Factors,
    non_positive_like_first,
    sign_of_product,
    zero_of_first,
)
from nas.genome.primitives.masks import drop_padding
from nas.genome.primitives.shapes import (
    Gates,
    Key,
    KeyGates,
    Mask,
    Query,
    QueryGates,
    Scores,
    Tokens,
)

_LEAST_HEADS = Choice(default="one", values=tuple(reversed(LABELS["q_heads"])))


def summed(
    logarithms: Float[Tensor, "b h n g"], mask: Mask, before: Float[Tensor, "b h 1 g"] | None
) -> Gates:
    """Return the sums of the logarithms up to each token; padding counts as a gate of 1.

    Args:
        before: the sum over earlier tokens; None for zero.
    """
    exact = torch.promote_types(logarithms.dtype, torch.float32)
    total = drop_padding(logarithms.to(exact), mask).cumsum(dim=2)
    return total if before is None else total + before


class GateOfInput(nn.Module):
    """Base of forget gates that are computed from the block's input x.

    The gates are sigmoid(raw)^(1 / root), or exp(-r softplus(raw)) with a rate r of each head if
    ``rate`` is a parameter. Rates start evenly between 1 and 16.
    """

    needs_all_tokens = True

    def __init__(self, heads: int, form: str, root: float = 1.0) -> None:
        super().__init__()
        is_exponential = form == "exponential"
        self.rate = nn.Parameter(torch.linspace(1.0, 16.0, heads).log()) if is_exponential else None
        self.root = root

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"], mask: Mask = None) -> Gates:
        return summed(self.logarithms(x), mask, None)

    def advance(
        self, state: tuple[Tensor, ...] | None, tokens: Tokens, x: Float[Tensor, "b n d"]
    ) -> tuple[Gates, tuple[Tensor, ...]]:
        total = summed(self.logarithms(x), None, state[0] if state else None)
        return total, (total[:, :, -1:],)

    def raw(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n g"]:
        """Return the numbers of which the gates are functions."""
        raise NotImplementedError

    def logarithms(self, x: Float[Tensor, "b n d"]) -> Gates:
        """Return log f for each gate and token."""
        raw = self.raw(x)
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
        if self.rate is None:
            return F.logsigmoid(raw) / self.root
        return -self.rate.exp().view(-1, 1, 1) * F.softplus(raw)


@primitive(
    "forget_gate",
    "tokens: tokens[h,w] -> gates[h]",
    role=Role.FORGET,
    notation="f_{form}(x)",
    source="sigmoid: Lin et al. 2025 (FoX, arXiv 2503.02130); exponential: Dao and Gu "
    "2024 (Mamba-2, arXiv 2405.21060), as in Gated DeltaNet (2412.06464)",
    parameters={
        "form": Choice(default="sigmoid", values=("sigmoid", "exponential")),
        "least_heads": _LEAST_HEADS,
    },
    derived=("least_heads",),
    unread=lambda params: ("tokens",),
    least_heads=lambda params: params["least_heads"],
    macs=lambda sizes, params: sizes.tokens * sizes.dim * sizes.heads,
    state=lambda sizes, params: sizes.heads,
)
class ForgetGate(GateOfInput):
    """Forget gates of each head, computed from the block's input x.

    sigmoid: f = sigmoid(w_h·x + b_h). Gates start near 1 - s_h for heads h = 0 to H - 1,
    where s_h = 2^(-8 (h + 1) / H) are the slopes of ALiBi. exponential: f = exp(-r_h
    softplus(w_h·x + b_h)), where rates r_h start evenly between 1 and 16, and softplus(b_h) evenly
    in logarithm between 0.001 and 0.1 (published: both at random in these intervals). The operand
    supplies the heads only.
    """

    def __init__(
        self, dim: int, heads: int, *, form: str = "sigmoid", least_heads: str = "one"
    ) -> None:
        super().__init__(heads, form)
        self.gate = nn.Linear(dim, heads)
        with torch.no_grad():
            if form == "sigmoid":
                share = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
                self.gate.bias.copy_(torch.logit(1.0 - share))
            else:
                self.gate.bias.copy_(torch.logspace(-3.0, -1.0, heads).expm1().log())

    def raw(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n 1"]:
        return self.gate(x).mT[..., None]


@primitive(
    "constant_gate",
    "tokens: tokens[h,w] -> gates[h]",
    role=Role.FORGET,
    notation="f",
    source="Sun et al. 2023 (RetNet, arXiv 2307.08621)",
    parameters={"least_heads": _LEAST_HEADS},
    derived=("least_heads",),
    unread=lambda params: ("tokens",),
    least_heads=lambda params: params["least_heads"],
)
class ConstantGate(nn.Module):
    """The same forget gate at all tokens: f = 1 - 2^(-5 - h) for heads h = 0, 1, ...

    The operand supplies the numbers of heads and tokens only.
    """

    has_parameters = False

    def __init__(self, heads: int, *, least_heads: str = "one") -> None:
        super().__init__()
        self.heads = heads

    def forward(self, tokens: Tokens, start: int | Tensor = 0) -> Gates:
        exact = torch.promote_types(tokens.dtype, torch.float32)
        heads = torch.arange(self.heads, device=tokens.device, dtype=exact)
        place = torch.arange(tokens.shape[2], device=tokens.device, dtype=exact) + start + 1
        gates = torch.log1p(-(2.0 ** (-5.0 - heads)))[:, None, None] * place[:, None]
        return gates.expand(tokens.shape[0], -1, -1, -1)


@primitive(
    "feature_gate",
    "tokens: tokens[h,w] -> feature_gates[h,w]",
    role=Role.FORGET,
    notation="F_{form}(x)",
    source="sigmoid: Yang et al. 2024 (GLA, arXiv 2312.06635); exponential: Kimi Team "
    "2025 (Kimi Linear, arXiv 2510.26692)",
    parameters={
        "form": Choice(default="sigmoid", values=("sigmoid", "exponential")),
        "rank": Integer(default=16, low=1, high=1024),
    },
    unread=lambda params: ("tokens",),
    macs=lambda sizes, params: (
        sizes.tokens * params["rank"] * (sizes.dim + sizes.heads * sizes.width)
    ),
    state=lambda sizes, params: sizes.heads * sizes.width,
)
class FeatureGate(GateOfInput):
    """Forget gates of each feature of each head, computed from the block's input x.

    sigmoid: f = sigmoid(W_2 W_1 x + b)^(1/16). exponential: f = exp(-r_h softplus(W_2 W_1 x + b)),
    with rates r_h and b as in ``forget_gate``. W_1: rank x d; W_2: one row for each feature. The
    operand supplies heads and features only.
    """

    def __init__(
        self, dim: int, heads: int, width: int, *, form: str = "sigmoid", rank: int = 16
    ) -> None:
        super().__init__(heads, form, root=16.0)
        self.heads = heads
        self.down = nn.Linear(dim, rank, bias=False)
        self.up = nn.Linear(rank, heads * width)
        if form == "exponential":
            with torch.no_grad():
                step = torch.logspace(-3.0, -1.0, heads).repeat_interleave(width)
                self.up.bias.copy_(step.expm1().log())

    def raw(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n w"]:
        return self.up(self.down(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)


@primitive(
    "bound_gates",
    "gates: feature_gates[h,w] -> feature_gates[h,w]",
    role=Role.FORGET,
    notation="bound({gates})",
    source="Qin et al. 2023 (HGRN, NeurIPS); Qin et al. 2024 (HGRN2, arXiv 2404.07904)",
    state=lambda sizes, params: 2 * sizes.heads * sizes.width,
)
class BoundGates(nn.Module):
    """Forget gates raised above a learned lower bound of each feature: l + (1 - l) f.

    l = sigmoid(b) with b initially 0. In the published models, bounds grow from layer to layer.
    """

    needs_all_tokens = True

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.bound = nn.Parameter(torch.zeros(heads, 1, width))

    def forward(self, gates: Gates) -> Gates:
        return self.advance(None, gates)[0]

    def advance(
        self, state: tuple[Tensor, ...] | None, gates: Gates
    ) -> tuple[Gates, tuple[Tensor, ...]]:
        zero = torch.zeros_like(gates[:, :, :1])
        before, total = (zero, zero) if state is None else state
        logarithms = gates - torch.cat((before, gates), dim=2)[:, :, :-1]
        low, rest = F.logsigmoid(self.bound), F.logsigmoid(-self.bound)
        out = total + torch.logaddexp(low, rest + logarithms).cumsum(dim=2)
        return out, (gates[:, :, -1:], out[:, :, -1:])


@primitive(
    "decay",
    "scores: scores[h], gates: gates[h] -> scores[h]",
    role=Role.ADJUST,
    notation="({scores} + log Π{gates})",
    source="Lin et al. 2025 (FoX, arXiv 2503.02130); both directions: symmetric, ours",
    sign=non_positive_like_first,
)
class Decay(nn.Module):
    """Scores plus the logarithm of the product of all forget gates between query and key.

    out_ij = scores_ij - |c_i - c_j|, with the sums c of the gates' logarithms
    """

    has_parameters = False

    def forward(self, scores: Scores, query: QueryGates, key: KeyGates) -> Scores:
        return scores + log_share(query, key.mT).to(scores.dtype)


def log_share(
    query_gates: Float[Tensor, "..."], key_gates: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Return -|c_i - c_j| for sums c of logarithms of gates.

    Equal sums, as of gates that round to 1, have the derivatives of an earlier key j. The absolute
    value's derivative would be zero, and such gates would not be trained.
    """
    difference = query_gates - key_gates
    return torch.where(difference > 0, -difference, difference)


def decayed_products(
    query: Query, key: Key, query_gates: QueryGates, key_gates: KeyGates
) -> Scores:
    """Return sum_u q_iu k_ju exp(-|c_iu - c_ju|) over the features u, for queries i and keys j.

    Gates of a head have one feature, whose exponential is a factor of the whole product.
    """
    if query_gates.shape[-1] == 1:
        decay = torch.exp(log_share(query_gates, key_gates.mT))
        return query @ key.mT * decay.to(query.dtype)
    decay = torch.exp(log_share(query_gates[:, :, :, None], key_gates[:, :, None]))
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
    macs=pair_macs,
    factors=Factors(is_scaled=True, is_gated=True),
    sign=lambda operands, is_square: sign_of_product(operands[:2], is_square=False),
)
class GatedProduct(nn.Module):
    """Scaled dot products in which each feature is multiplied by all gates between query and key.

    scores_ij = sum_u q_iu k_ju exp(-|c_iu - c_ju|) / sqrt(r), with the sums c of the gates'
    logarithms (the same for all features, if gates belong to heads) and r = ``rank``. Weights that
    equal these scores give gated linear attention: its state S_t = diag(f_t) S_{t-1} + k_t^T v_t.
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
    sign=zero_of_first,
    state=lambda sizes, params: sizes.heads * sizes.gates,
)
class WriteGate(nn.Module):
    """Tokens times what their forget gate f takes from the past: 1 - f, or -log f.

    complement: 1 - f, so that a state forgets as much as it writes. rate: -log f, which is the step
    size of Mamba-2 times the rate of the head. Without tokens, the result is the factor itself.
    """

    needs_all_tokens = True
    has_parameters = False

    def __init__(self, *, form: str = "complement") -> None:
        super().__init__()
        self.is_rate = form == "rate"

    def forward(self, *operands: Tensor) -> Tokens:
        return self.advance(None, *operands)[0]

    def advance(
        self, state: tuple[Tensor, ...] | None, *operands: Tensor
    ) -> tuple[Tokens, tuple[Tensor, ...]]:
        *tokens, gates = operands
        before = torch.zeros_like(gates[:, :, :1]) if state is None else state[0]
        logarithms = gates - torch.cat((before, gates), dim=2)[:, :, :-1]
        written = -logarithms if self.is_rate else -torch.expm1(logarithms)
        result = tokens[0] * written.to(tokens[0].dtype) if tokens else written
        return result, (gates[:, :, -1:],)


@primitive(
    "swish_gate",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.GATE,
    notation="{tokens} ⊙ SiLU(W x)",
    source="Sun et al. 2023 (RetNet, arXiv 2307.08621)",
    macs=lambda sizes, params: sizes.tokens * sizes.dim * sizes.heads * sizes.width,
    sign=zero_of_first,
    homogeneous=("tokens",),
    is_additive=True,
    is_featurewise=True,
)
class SwishGate(nn.Module):
    """Features multiplied by a gate computed from the block's input x, which may be negative.

    out_i = tokens_i * silu(W_h x_i), elementwise, with a learned map W_h for each head h
    """

    def __init__(self, dim: int, heads: int, width: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.gate = nn.Linear(dim, heads * width, bias=bias)

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"]) -> Tokens:
        gate = self.gate(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return tokens * F.silu(gate)


@primitive(
    "scan",
    "tokens: tokens[h,w], gates: gates[h] -> tokens[h,w]",
    "tokens: tokens[h,w], gates: feature_gates[h,w] -> tokens[h,w]",
    role=Role.AGGREGATE,
    notation="scan({tokens}, {gates})",
    source="Qin et al. 2023 (HGRN, NeurIPS); in parallel: Hillis and Steele 1986",
    sign=zero_of_first,
    state=lambda sizes, params: sizes.heads * (sizes.width + sizes.gates),
)
class Scan(nn.Module):
    """The recurrence out_t = f_t out_{t-1} + tokens_t of each feature, with forget gates f.

    Sums over 1, 2, 4, ... tokens are computed from sums over half as many, so that the number of
    operations on whole sequences is the logarithm of the number of tokens.
    """

    needs_all_tokens = True
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
        shares = log_share(gates[:, :, :, None], gates[:, :, None])
        kept = shares.masked_fill(later[:, :, None], -torch.inf).exp()
        return (kept * tokens[:, :, None]).sum(dim=3)

    def advance(
        self, state: tuple[Tensor, ...] | None, tokens: Tokens, gates: Gates
    ) -> tuple[Tokens, tuple[Tensor, ...]]:
        out = self(tokens, gates)
        if state is not None:
            total, before = state
            out = out + (torch.exp(gates - before) * total).to(out.dtype)
        return out, (out[:, :, -1:], gates[:, :, -1:])
