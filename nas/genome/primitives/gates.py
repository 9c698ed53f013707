"""Forget gates, of which module ``gated`` has the uses.

A forget gate f_t between 0 and 1 says which share of the past remains at token t. The results are
sums c_t = log f_0 + ... + log f_t, so that exp(c_i - c_j) is the product of the gates after token j
up to token i. Without a causal mask, exp(-|c_i - c_j|) is the product of the gates between two
tokens in either order; its exponent never exceeds zero, so that no exponential overflows. Sums are
in float32 at least: 16 bits are too few for sums over long sequences.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import LEAST_HEADS, Role, always, primitive
from nas.genome.primitives.domains import Choice, Integer
from nas.genome.primitives.tensors import Gates, Inputs, Mask, Tokens, drop_padding


def summed(logarithms: Float[Tensor, "b h n g"], mask: Mask) -> Gates:
    """Return the sums of the logarithms up to each token; padding counts as a gate of 1."""
    exact = torch.promote_types(logarithms.dtype, torch.float32)
    return drop_padding(logarithms.to(exact), mask).cumsum(dim=2)


class GateOfInput(nn.Module):
    """Base of forget gates that are computed from the block's input x.

    The gates are sigmoid(raw)^(1 / root), or exp(-r softplus(raw)) if ``form`` is exponential, with
    a learned rate r of each head. Rates start evenly between 1 and 16.
    """

    needs_all_tokens = True
    reads_hidden_tokens = True

    def __init__(self, heads: int, form: str, root: float = 1.0) -> None:
        super().__init__()
        is_exponential = form == "exponential"
        self.rate = nn.Parameter(torch.linspace(1.0, 16.0, heads).log()) if is_exponential else None
        self.root = root

    def forward(self, tokens: Tokens, x: Inputs, mask: Mask = None) -> Gates:
        raw = self.raw(x)
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
        if self.rate is None:
            return summed(F.logsigmoid(raw) / self.root, mask)
        return summed(-self.rate.exp().view(-1, 1, 1) * F.softplus(raw), mask)

    def raw(self, x: Inputs) -> Float[Tensor, "b h n g"]:
        """Return the numbers of which the gates are functions."""
        raise NotImplementedError


@primitive(
    "forget_gate",
    "tokens: tokens[h,w] -> gates[h]",
    role=Role.FORGET,
    notation="f_{form}(x)",
    source="sigmoid: Lin et al. 2025 (FoX, arXiv 2503.02130); exponential: Dao and Gu "
    "2024 (Mamba-2, arXiv 2405.21060), as in Gated DeltaNet (2412.06464)",
    parameters={
        "form": Choice(default="sigmoid", values=("sigmoid", "exponential")),
        "least_heads": LEAST_HEADS,
    },
    unread=lambda params: ("tokens",),
    history=lambda params: 0,
)
class ForgetGate(GateOfInput):
    """Forget gates of each head, computed from the block's input x.

    sigmoid: f = sigmoid(w_h·x + b_h); gates start near 1 - 2^(-8 (h + 1) / H), h = 0, ..., H - 1.
    exponential: f = exp(-r_h softplus(w_h·x + b_h)); rates r_h start evenly between 1 and 16, and
    softplus(b_h) evenly in logarithm between 0.001 and 0.1, where the paper draws both at random.
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

    def raw(self, x: Inputs) -> Float[Tensor, "b h n 1"]:
        return self.gate(x).mT[..., None]


@primitive(
    "constant_gate",
    "tokens: tokens[h,w] -> gates[h]",
    role=Role.FORGET,
    notation="f",
    source="Sun et al. 2023 (RetNet, arXiv 2307.08621)",
    parameters={"least_heads": LEAST_HEADS},
    unread=lambda params: ("tokens",),
)
class ConstantGate(nn.Module):
    """The same forget gate at all tokens: f = 1 - 2^(-5 - h) for heads h = 0, 1, ..."""

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
    history=lambda params: 0,
    is_featurewise=lambda params: params["form"] == "sigmoid",  # else each head has a rate
)
class FeatureGate(GateOfInput):
    """Forget gates of each feature of each head, computed from the block's input x.

    sigmoid: f = sigmoid(W_2 W_1 x + b)^(1/16). exponential: f = exp(-r_h softplus(W_2 W_1 x + b)),
    with rates r_h and b as in ``forget_gate``. W_1: rank x d; W_2: one row for each feature.
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

    def raw(self, x: Inputs) -> Float[Tensor, "b h n w"]:
        return self.up(self.down(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2)


@primitive(
    "bound_gates",
    "gates: feature_gates[h,w] -> feature_gates[h,w]",
    role=Role.FORGET,
    notation="bound({gates})",
    source="Qin et al. 2023 (HGRN, NeurIPS); Qin et al. 2024 (HGRN2, arXiv 2404.07904)",
    history=lambda params: 0,
)
class BoundGates(nn.Module):
    """Forget gates raised above a learned lower bound of each feature: l + (1 - l) f.

    l = sigmoid(b) with b initially 0.
    """

    needs_all_tokens = True

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.bound = nn.Parameter(torch.zeros(heads, 1, width))

    def forward(self, gates: Gates) -> Gates:
        logarithms = gates - F.pad(gates, (0, 0, 1, 0))[:, :, :-1]
        low, rest = F.logsigmoid(self.bound), F.logsigmoid(-self.bound)
        return torch.logaddexp(low, rest + logarithms).cumsum(dim=2)


@primitive(
    "token_gate",
    "tokens: tokens[h,w] -> feature_gates[h,w]",
    role=Role.FORGET,
    notation="f_sigmoid({tokens})",
    source="Zhang et al. 2024 (GSA, arXiv 2409.07146)",
    history=lambda params: 0,
    is_featurewise=always,
)
class TokenGate(nn.Module):
    """Forget gates of each feature of the tokens: f = sigmoid(tokens)."""

    needs_all_tokens = True
    reads_hidden_tokens = True
    has_parameters = False

    def forward(self, tokens: Tokens, mask: Mask = None) -> Gates:
        exact = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
        return summed(F.logsigmoid(exact), mask)
