"""Query-As-Network Attention (QANA): each query is a small network that scores the keys.

Vermillion 2025, eq. 3.1. Decisions beside those in nas/genome/mechanisms/papers.py:

- s is the query stream. U, V, b and c are projected from the block's input x by one linear map per
  head, so they exist even if the query is not projected.
- With RoPE the keys and each row of U are rotated by the position of their token:
  U~_il·k~_j = U_il^T R_{j-i} k_j. This equals U_il·k_j, the paper's "key property", only for i = j.
- alpha is a number for each head.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.base import Params, pair_score
from nas.genome.primitives.domains import Choice, Flag, Integer
from nas.genome.primitives.neural_scores import ACTIVATION
from nas.genome.primitives.positions import rotate
from nas.genome.primitives.tensors import Key, Query, Scores


def _check(params: Params) -> None:
    if params["gate"] != "learned" and params["init"] == "gate":
        raise ValueError("init: gate starts from a closed gate; expected gate: learned")


@pair_score(
    "qana",
    "QANA_{hidden}({query}, {key})",
    "Vermillion 2025 (QANA), eq. 3.1",
    parameters={
        "hidden": Integer(default=4, low=1, high=64),
        "activation": ACTIVATION,
        "init": Choice(default="zero_out", values=("zero_out", "gate", "random")),
        "mlp_scale": Choice(default="none", values=("none", "sqrt")),
        "gate": Choice(default="none", values=("none", "learned", "warmup")),
        "basis": Integer(default=None, low=1, high=4096, nullable=True),
        "rope": Flag(default=False),
    },
    check=_check,
)
class Qana(nn.Module):
    """Dot product plus a hidden layer whose weights are computed from the query's token.

    scores_ij = s_i·k_j / sqrt(r) + alpha (sum_l V_il act(m U_il·k_j + b_il) + c_i),
    with r the key width, and U, V, b, c linear in the block's input x_i.

    Args:
        hidden: number of hidden units, which the index l counts.
        init: initial values of U, V, b and c. ``random`` draws all of them. ``zero_out`` sets V, b
            and c to zero; scores start as dot products, as in the paper, whose zeros in U, too,
            can never train under softmax. ``gate`` draws all and sets alpha to zero.
        mlp_scale: ``none`` for m = 1, or ``sqrt`` for m = 1/sqrt(r).
        gate: ``none`` for alpha = 1, ``learned`` for a learned alpha of each head, or ``warmup``
            for an alpha that rises from 0 to 1 over the first 100 forward passes in training mode
            (section 6.2).
        basis: number of basis rows B_r of each head, with U_il = sum_r a_ilr B_r (section 6.2).
        rope: whether s, k and the rows of U are rotated by the positions of their tokens.
    """

    warmup = 100
    passes: Tensor | None

    def __init__(
        self,
        dim: int,
        heads: int,
        width: int,
        rank: int,
        bias: bool = False,
        *,
        hidden: int = 4,
        activation: str = "gelu",
        init: str = "zero_out",
        mlp_scale: str = "none",
        gate: str = "none",
        basis: int | None = None,
        rope: bool = False,
    ) -> None:
        super().__init__()
        if rope and width % 2:
            raise ValueError(f"qana: the key width is {width}; expected an even number for rope")
        self.heads, self.hidden = heads, hidden
        self.activation = activation
        self.rope = rope
        self.skip_scale = rank**-0.5
        self.scale = self.skip_scale if mlp_scale == "sqrt" else 1.0
        self.parts = (hidden * (basis or width), hidden, hidden, 1)
        self.tail = nn.Linear(dim, heads * sum(self.parts), bias=bias)
        self.basis = None
        self.alpha = None
        if basis is not None:
            self.basis = nn.Parameter(torch.empty(heads, basis, width).normal_(std=basis**-0.5))
        if gate == "learned":
            self.alpha = nn.Parameter(torch.full((heads,), 0.0 if init == "gate" else 1.0))
        if gate == "warmup":
            # A buffer, so that it is saved with the weights.
            self.register_buffer("passes", torch.zeros(()))
        else:
            self.passes = None
        if init == "zero_out":
            with torch.no_grad():
                for tensor in self.tail.parameters():
                    tensor.view(self.heads, sum(self.parts), -1)[:, self.parts[0] :] = 0.0

    def forward(
        self, query: Query, key: Key, x: Float[Tensor, "b q d"], start: int | Tensor = 0
    ) -> Scores:
        units = self.units(x)
        if self.rope:
            query, key = rotate(query, start), rotate(key)
            units = rotate(units[0], start), *units[1:]
        return self.score(query, key, units)

    def units(self, x: Float[Tensor, "b q d"]) -> tuple[Tensor, ...]:
        """Return U, V, b and c, the weights of the small network that each query defines.

        For l hidden units, U has shape (batch, heads, queries, l, key width), or without rotation
        its coefficients in the basis rows; V and b have shape (batch, heads, queries, l), c one
        number.
        """
        tail = self.tail(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights, out, bias, shift = tail.split(self.parts, dim=-1)
        rows = weights.unflatten(-1, (self.hidden, -1))
        if self.basis is not None and self.rope:
            rows = rows @ self.basis.unsqueeze(1)
        return rows, out, bias, shift

    def score(self, query: Query, key: Key, units: tuple[Tensor, ...]) -> Scores:
        features, rows, out, bias, shift = self.gated(key, units)
        # One product for all hidden units: (b, h, q * l, w) against the keys.
        inner = (rows.flatten(2, 3) @ features.transpose(-2, -1)).unflatten(2, (-1, self.hidden))
        active = getattr(F, self.activation)(inner + bias.unsqueeze(-1))
        scores = (out.unsqueeze(-2) @ active).squeeze(-2) + shift
        return scores + query @ key.transpose(-2, -1) * self.skip_scale

    def gated(self, key: Key, units: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the networks' inputs (keys or products with the basis), and scaled U, V, b, c."""
        rows, out, bias, shift = units
        if self.scale != 1.0:
            rows = rows * self.scale
        if self.basis is not None and not self.rope:
            key = key @ self.basis.transpose(-2, -1)
        if self.alpha is not None:
            alpha = self.alpha.view(-1, 1, 1)
            out, shift = out * alpha, shift * alpha
        if self.passes is not None:
            alpha = (self.passes / self.warmup).clamp(max=1.0).to(key.dtype)
            if self.training:
                self.passes.add_(1.0)
            out, shift = out * alpha, shift * alpha
        return key, rows, out, bias, shift
