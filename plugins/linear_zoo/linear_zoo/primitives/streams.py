"""Further streams, and operations on streams of recent recurrent models.

A block has three streams: queries, keys and values. ``projection`` adds one more, such as the slots
of gated slot attention or the second queries of Parallax.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Params, Role, primitive
from nas.genome.primitives.domains import Choice, Flag, Integer, Real
from nas.genome.primitives.tensors import Gates, Mask, Tokens, drop_padding

_RANK = Integer(default=None, low=1, high=4096, nullable=True)
_ACTIVATION = Choice(default="none", values=("none", "tanh", "sigmoid"))
_BIAS = Integer(default=None, low=-16, high=16, nullable=True)


def mapped(
    dim: int, features: int, rank: int | None, activation: str, bias: int | None
) -> nn.Module:
    """Return a linear map, or two with an activation between them; all biases are ``bias``."""
    if rank is None:
        last = nn.Linear(dim, features, bias=bias is not None)
        layers: list[nn.Module] = [last]
    else:
        between = {"none": nn.Identity, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}[activation]
        last = nn.Linear(rank, features, bias=bias is not None)
        layers = [nn.Linear(dim, rank, bias=False), between(), last]
    if bias is not None:
        nn.init.constant_(last.bias, float(bias))
    return nn.Sequential(*layers)


def _unread(params: Params) -> tuple[str, ...]:
    return ("tokens", "activation") if params["rank"] is None else ("tokens",)


@primitive(
    "projection",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="W x",
    source="Vaswani et al. 2017, section 3.2.2; rank: Hu et al. 2021 (LoRA), section 4.1",
    parameters={"rank": _RANK, "activation": _ACTIVATION, "bias": _BIAS},
    unread=_unread,
)
class Projection(nn.Module):
    """A further stream: a learned map of the block's input x.

    out = W x + b, or W_2 g(W_1 x) + b if there is a ``rank``. The operand supplies heads and
    features only.

    Args:
        rank: number of rows of W_1; None for a single matrix W.
        activation: g: the identity (``none``), tanh or sigmoid.
        bias: initial value of b; None for no b.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        width: int,
        *,
        rank: int | None = None,
        activation: str = "none",
        bias: int | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.map = mapped(dim, heads * width, rank, activation, bias)

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"]) -> Tokens:
        return self.map(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)


@primitive(
    "shifted_projection",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="W shift(x)",
    source="learned: Peng et al. 2023 (RWKV, arXiv 2305.13048); dynamic: Peng et al. "
    "2024 (Eagle and Finch, arXiv 2404.05892)",
    parameters={
        "form": Choice(default="learned", values=("learned", "dynamic")),
        "rank": _RANK,
        "activation": _ACTIVATION,
        "bias": _BIAS,
    },
    unread=_unread,
    state=lambda sizes, params: sizes.dim,
)
class ShiftedProjection(nn.Module):
    """A projection of the block's input x, in which each token is mixed with the previous one.

    The projection of x_t + m_t * (x_{t-1} - x_t) as in ``projection``. learned: m_t is a vector m.
    dynamic: m_t = m + W_2 tanh(W_1 (x_t + m' * (x_{t-1} - x_t))), W_1: 32 x d. m, m' and W_2 are
    initially zero. Padding and the token before the first one count as zeros.
    """

    needs_all_tokens = True

    def __init__(
        self,
        dim: int,
        heads: int,
        width: int,
        *,
        form: str = "learned",
        rank: int | None = None,
        activation: str = "none",
        bias: int | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.map = mapped(dim, heads * width, rank, activation, bias)
        self.mix = nn.Parameter(torch.zeros(dim))
        self.is_dynamic = form == "dynamic"
        if self.is_dynamic:
            self.first_mix = nn.Parameter(torch.zeros(dim))
            self.down = nn.Linear(dim, 32, bias=False)
            self.up = nn.Linear(32, dim, bias=False)
            nn.init.zeros_(self.up.weight)

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"], mask: Mask = None) -> Tokens:
        x = drop_padding(x[:, None], mask)[:, 0]
        change = F.pad(x, (0, 0, 1, 0))[:, :-1] - x
        mix = self.mix.to(x.dtype)
        if self.is_dynamic:
            mix = mix + self.up(torch.tanh(self.down(x + change * self.first_mix.to(x.dtype))))
        mixed = self.map(x + change * mix)
        return mixed.unflatten(-1, (self.heads, -1)).transpose(1, 2)


@primitive(
    "strength",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="σ(w·x)",
    source="Yang et al. 2024 (DeltaNet, arXiv 2406.06484), the strength of a write",
    parameters={"root": Integer(default=1, low=1, high=2)},
    unread=lambda params: ("tokens",),
)
class Strength(nn.Module):
    """A number between 0 and 1 of each head, computed from x, in place of all features.

    out = sigmoid(w_h·x + c_h)^(1 / root). Several products can share it, such
    as the keys that erase and the values that are written. The operand supplies heads and features
    only.
    """

    def __init__(self, dim: int, heads: int, *, root: int = 1) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, heads)
        self.root = root

    def forward(self, tokens: Tokens, x: Float[Tensor, "b n d"]) -> Tokens:
        share = (F.logsigmoid(self.gate(x)) / self.root).exp()
        return share.mT[..., None].expand_as(tokens).to(tokens.dtype)


@primitive(
    "head_scale",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.TRANSFORM,
    notation="a·{tokens}",
    source="Hu et al. 2025 (Comba, arXiv 2506.02475)",
    parameters={"bounded": Flag(default=False), "initial": Real(default=1.0, low=-16.0, high=16.0)},
)
class HeadScale(nn.Module):
    """Features times a learned number a of each head.

    Args:
        bounded: whether the factor is sigmoid(a), between 0 and 1.
        initial: initial value of a.
    """

    def __init__(self, heads: int, *, bounded: bool = False, initial: float = 1.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((heads, 1, 1), initial))
        self.bounded = bounded

    def forward(self, tokens: Tokens) -> Tokens:
        factor = torch.sigmoid(self.factor) if self.bounded else self.factor
        return tokens * factor.to(tokens.dtype)


@primitive(
    "delay_gates",
    "gates: gates[h] -> gates[h]",
    "gates: feature_gates[h,w] -> feature_gates[h,w]",
    role=Role.FORGET,
    notation="delay({gates})",
    source="elementary; RWKV reads its state before the token is written: arXiv 2404.05892",
    state=lambda sizes, params: sizes.heads * sizes.gates,
)
class DelayGates(nn.Module):
    """The forget gates of the previous token; the gate of the first token is 1."""

    needs_all_tokens = True
    has_parameters = False

    def forward(self, gates: Gates) -> Gates:
        return F.pad(gates, (0, 0, 1, 0))[:, :, :-1]
