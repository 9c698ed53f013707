"""Query-As-Network Attention: every query is a small network that scores the keys.

Vermillion 2025. Readings where the paper is silent or inconsistent: the slices stand in the
order of section 3.2 (s, U, V, b, c); keys are rotated where RoPE is on (eq. 3.1 omits it); the
tail U, V, b, c is projected from the block's input, per head, by one map of its own, so that it
exists where the query itself is not projected.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.primitives.base import Params, Role, Sizes, primitive
from nas.primitives.domains import Choice, Flag, Integer
from nas.primitives.hidden_units import activate
from nas.primitives.rotary import rotate


def _macs(sizes: Sizes, params: Params) -> int:
    hidden, width = params["hidden"], sizes.width
    tail = sizes.tokens * sizes.dim * sizes.heads * (hidden * width + 2 * hidden + 1)
    skip = width if params["skip"] else 0
    return tail + sizes.heads * sizes.tokens**2 * (skip + hidden * width + hidden)


def _check(params: Params) -> None:
    if not params["skip"] and params["init"] != "random":
        raise ValueError(
            f"skip: false with init: {params['init']} scores every key alike at the start; "
            "expected init: random"
        )
    if params["gate"] == "none" and params["init"] == "gate":
        raise ValueError("init: gate starts from a closed gate; expected gate: learned")


@primitive(
    "qana",
    "query: tokens[h,w], key: tokens[h,w] -> scores[h]",
    role=Role.SCORE,
    notation="QANA_{hidden}({query}, {key})",
    source="Vermillion 2025 (QANA), section 3.1",
    parameters={
        "hidden": Integer(default=4, low=1, high=64),
        "activation": Choice(default="gelu", values=("gelu", "relu", "silu", "tanh")),
        "init": Choice(default="zero_out", values=("zero_out", "paper_zero", "gate", "random")),
        "mlp_scale": Choice(default="none", values=("none", "sqrt")),
        "skip": Flag(default=True),
        "gate": Choice(default="none", values=("none", "learned")),
        "rope": Flag(default=False),
    },
    check=_check,
    macs=_macs,
)
class Qana(nn.Module):
    """A dot product plus a hidden layer whose weights are the query.

    scores_ij = s_i·k_j / sqrt(r) + alpha (sum_l V_il act(U_il·k_j m + b_il) + c_i),
    with r the key width, m = 1 or 1/sqrt(r), and U, V, b, c linear in the block's input x_i.

    Initialisations: ``zero_out`` (V, b, c zero: equal to the dot product at the start, and it
    trains), ``gate`` (alpha zero), ``random``, and the paper's ``paper_zero`` (all zero), which
    under a shift-invariant normaliser has exactly zero gradients and never trains.
    """

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
        rope: bool = False,
    ) -> None:
        super().__init__()
        if rope and width % 2:
            raise ValueError(f"qana: the key width is {width}; expected an even number for rope")
        self.heads, self.hidden, self.skip, self.rope = heads, hidden, skip, rope
        self.activation = activation
        self.skip_scale = rank**-0.5
        self.scale = self.skip_scale if mlp_scale == "sqrt" else 1.0
        self.parts = (hidden * width, hidden, hidden, 1)
        self.tail = nn.Linear(dim, heads * sum(self.parts), bias=bias)
        self.alpha = None
        if gate == "learned":
            self.alpha = nn.Parameter(torch.full((heads,), 0.0 if init == "gate" else 1.0))
        self._start(init)

    def _start(self, init: str) -> None:
        """Zero the rows of the tail that the initialisation wants zero."""
        kept = {"zero_out": self.parts[0], "paper_zero": 0}.get(init)
        if kept is None:
            return
        with torch.no_grad():
            for tensor in self.tail.parameters():
                tensor.view(self.heads, sum(self.parts), -1)[:, kept:] = 0.0

    def forward(
        self,
        query: Float[Tensor, "b h q w"],
        key: Float[Tensor, "b h k w"],
        x: Float[Tensor, "b q d"],
    ) -> Float[Tensor, "b h q k"]:
        width = query.shape[-1]
        tail = self.tail(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        weights, out, bias, shift = tail.split(self.parts, dim=-1)
        rows = weights.unflatten(-1, (self.hidden, width))
        if self.rope:
            query, key, rows = rotate(query), rotate(key), rotate(rows)
        # One product for all hidden units: (b, h, q * hidden, w) against the keys.
        inner = (rows.flatten(2, 3) @ key.transpose(-2, -1)).unflatten(2, (-1, self.hidden))
        active = activate(inner * self.scale + bias.unsqueeze(-1), self.activation)
        scores = (out.unsqueeze(-2) @ active).squeeze(-2) + shift
        if self.alpha is not None:
            scores = scores * self.alpha.view(-1, 1, 1)
        if self.skip:
            scores = scores + query @ key.transpose(-2, -1) * self.skip_scale
        return scores
