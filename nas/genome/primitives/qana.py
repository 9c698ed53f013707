"""Query-As-Network Attention: every query is a small network that scores the keys.

Vermillion 2025 (QANA). For a head with keys of width D_K and h hidden units the query vector has
D_Q = D_K + h D_K + 2h + 1 numbers, cut in the order of section 3.2 into

    s (D_K), U (h, D_K), V (h), b (h), c (1)

    score_ij = s_i·k_j / sqrt(D_K) + alpha (sum_l V_il act(U_il·k_j + b_il) + c_i)     (eq. 3.1)

Readings beside those of the mechanism (nas/genome/mechanisms/qana.py):

- s is the query stream. The tail U, V, b, c is projected from the block's input x, per head, by one
  map of its own, so that it exists where the query itself is not projected.
- With RoPE the keys of eq. 3.1 and every row of U turn with their tokens: U~_il·k~_j =
  U_il^T R_{j-i} k_j, which is the paper's "key property" U_il·k_j for i = j alone.
- The identity is no choice of act: it collapses to a dot product with s / sqrt(D_K) + U^T V.
- ``mlp_scale: sqrt`` divides U·k by sqrt(D_K) too, whose deviation is otherwise sqrt(D_K).
- alpha is a number for each head. c matters under sigmoid.
- Why section 4's start of zeros never trains: the gradients of U and b are V act' = 0, and those of
  V and c, act(0) and 1, are constant in j, which softmax annihilates.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.genome.primitives.base import Params, Role, Sizes, primitive
from nas.genome.primitives.domains import Choice, Flag, Integer
from nas.genome.primitives.hidden_units import ACTIVATION, activate
from nas.genome.primitives.rotary import rotate
from nas.genome.primitives.shapes import Key, Query, Scores


def _macs(sizes: Sizes, params: Params) -> int:
    """Tail, then rows or keys through the basis, then each pair: skip, hidden units, their sum."""
    hidden, basis, width = params["hidden"], params["basis"], sizes.width
    tail = sizes.queries * sizes.dim * (hidden * (basis or width) + 2 * hidden + 1)
    through = sizes.queries * hidden if params["rope"] else sizes.tokens
    mixed = through * width * (basis or 0)
    inner = width if basis is None or params["rope"] else basis
    pair = (width if params["skip"] else 0) + hidden * inner + hidden
    return sizes.heads * (tail + mixed + sizes.pairs * pair)


def _unread(params: Params) -> tuple[str, ...]:
    port = () if params["skip"] else ("query",)
    return port if params["gate"] == "warmup" else (*port, "warmup")


def _check(params: Params) -> None:
    if not params["skip"] and (params["init"] != "random" or params["gate"] == "warmup"):
        raise ValueError(
            f"skip: false with init: {params['init']} and gate: {params['gate']} scores every key "
            "alike at the start; expected init: random, and gate: none or learned"
        )
    if params["gate"] != "learned" and params["init"] == "gate":
        raise ValueError("init: gate starts from a closed gate; expected gate: learned")


def _caution(params: Params) -> str | None:
    if params["init"] != "paper_zero":
        return None
    return (
        "qana, init: paper_zero never trains under a shift-invariant normaliser such as softmax: "
        "every gradient of its tail is exactly zero; zero_out starts from the same function, and "
        "trains"
    )


@primitive(
    "qana",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="QANA_{hidden}({query}, {key})",
    source="Vermillion 2025 (QANA), eq. 3.1",
    parameters={
        "hidden": Integer(default=4, low=1, high=64),
        "activation": ACTIVATION,
        "init": Choice(default="zero_out", values=("zero_out", "paper_zero", "gate", "random")),
        "mlp_scale": Choice(default="none", values=("none", "sqrt")),
        "skip": Flag(default=True),
        "gate": Choice(default="none", values=("none", "learned", "warmup")),
        "warmup": Integer(default=100, low=1, high=1_000_000),
        "basis": Integer(default=None, low=1, high=4096, nullable=True),
        "rope": Flag(default=False),
    },
    check=_check,
    caution=_caution,
    macs=_macs,
    passes=lambda sizes, params: 1 + 3 * params["hidden"],
    is_stateful=lambda params: params["gate"] == "warmup",
    unread=_unread,
)
class Qana(nn.Module):
    """A dot product plus a hidden layer whose weights are the query.

    scores_ij = s_i·k_j / sqrt(r) + alpha (sum_l V_il act(m U_il·k_j + b_il) + c_i),
    with r the key width, m = 1 or 1/sqrt(r), and U, V, b, c linear in the block's input x_i.

    Args:
        init: ``zero_out`` (V, b, c zero: equal to the dot product at the start, and it trains),
            ``gate`` (alpha zero), ``random``, or the paper's ``paper_zero`` (all zero), which
            under a shift-invariant normaliser has exactly zero gradients and never trains.
        gate: alpha is 1 (``none``), ``learned``, or rises from 0 to 1 over the first ``warmup``
            passes in training mode (the gating schedule of section 6.2).
        basis: U_il = sum_r a_ilr B_r, with that many rows B shared by all queries of a head
            (section 6.2, shared basis): D_Q shrinks to D_K + h basis + 2h + 1.
        rope: rotate s, k and the rows of U by their tokens' positions.
    """

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
        skip: bool = True,
        gate: str = "none",
        warmup: int = 100,
        basis: int | None = None,
        rope: bool = False,
    ) -> None:
        super().__init__()
        if rope and width % 2:
            raise ValueError(f"qana: the key width is {width}; expected an even number for rope")
        self.heads, self.hidden, self.activation = heads, hidden, activation
        self.skip = skip
        self.rope = rope
        self.warmup = warmup
        self.skip_scale = rank**-0.5
        self.scale = self.skip_scale if mlp_scale == "sqrt" else 1.0
        self.parts = (hidden * (basis or width), hidden, hidden, 1)
        self.tail = nn.Linear(dim, heads * sum(self.parts), bias=bias)
        self.basis = self.alpha = None
        if basis is not None:
            self.basis = nn.Parameter(torch.empty(heads, basis, width).normal_(std=basis**-0.5))
        if gate == "learned":
            self.alpha = nn.Parameter(torch.full((heads,), 0.0 if init == "gate" else 1.0))
        if gate == "warmup":
            # A count of passes is a state: it is saved with the weights.
            self.register_buffer("passes", torch.zeros(()))
        else:
            self.passes = None
        self._start(init)

    def _start(self, init: str) -> None:
        """Zero the rows of the tail that the initialisation wants zero."""
        random_rows = {"zero_out": self.parts[0], "paper_zero": 0}.get(init)
        if random_rows is not None:
            with torch.no_grad():
                for tensor in self.tail.parameters():
                    tensor.view(self.heads, sum(self.parts), -1)[:, random_rows:] = 0.0

    def forward(self, query: Query, key: Key, x: Float[Tensor, "b q d"], start: int = 0) -> Scores:
        units = self.units(x)
        if self.rope:
            query, key, units = self.turned(query, key, units, start)
        return self.score(query, key, units)

    def turned(
        self, query: Tensor, key: Tensor, units: tuple[Tensor, ...], start: int
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Queries, keys and the rows of U, rotated by their tokens' positions."""
        rows, *rest = units
        return rotate(query, start), rotate(key), (rotate(rows, start), *rest)

    def units(self, x: Float[Tensor, "b q d"]) -> tuple[Tensor, ...]:
        """The queries' networks: U (b, h, q, l, w), V and b (b, h, q, l), c (b, h, q, 1).

        With a basis that nothing rotates, its coefficients stand for U: (b, h, q, l, basis).
        """
        tail = self.tail(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights, out, bias, shift = tail.split(self.parts, dim=-1)
        rows = weights.unflatten(-1, (self.hidden, -1))
        if self.basis is not None and self.rope:
            rows = rows @ self.basis.unsqueeze(1)
        return rows, out, bias, shift

    def score(self, query: Query, key: Key, units: tuple[Tensor, ...]) -> Scores:
        """The scores of keys by queries and their networks, all rotated where they are to be."""
        features, rows, out, bias, shift = self.gated(key, units)
        # One product for all hidden units: (b, h, q * l, w) against the keys.
        inner = (rows.flatten(2, 3) @ features.transpose(-2, -1)).unflatten(2, (-1, self.hidden))
        active = activate(inner + bias.unsqueeze(-1), self.activation)
        scores = (out.unsqueeze(-2) @ active).squeeze(-2) + shift
        if not self.skip:
            return scores
        return scores + query @ key.transpose(-2, -1) * self.skip_scale

    def gated(self, key: Key, units: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """What the networks see of the keys; the networks, scaled, with alpha in their output."""
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
