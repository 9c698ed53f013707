"""Shared code of additive scores: sums over hidden units of a query and a key.

scores_ij = sum_m weight_m act(left_im + right_jm) + shift
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nas.genome.primitives.domains import Choice, Integer
from nas.genome.primitives.shapes import Scores

ACTIVATION: Final = Choice(default="gelu", values=("gelu", "relu", "silu", "tanh"))
REDUCED_DIM: Final = Integer(default=None, low=2, high=4096, nullable=True)


def uniform_start(*shape: int, fan: int) -> nn.Parameter:
    """A parameter that starts as those of nn.Linear do."""
    bound = fan**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def sum_units(
    left: Float[Tensor, "b h q m"],
    right: Float[Tensor, "b h k m"],
    weight: Float[Tensor, "..."],
    shift: Float[Tensor, "..."],
    activation: str,
) -> Scores:
    """Scores of a hidden layer over pairs, one unit at a time: no (b, h, q, k, m) tensor exists."""
    queries = left.unsqueeze(-2).unbind(-1)
    # Keys unit by unit in memory: the innermost loop then runs over neighbours.
    keys = right.transpose(-2, -1).contiguous().unsqueeze(-2).unbind(2)
    # Every unit, the first too, is one multiply-add: counted as h·n²·m.
    scores = shift.view(-1, 1, 1)
    for query, key, factor in zip(queries, keys, weight.unbind(-1), strict=True):
        active = activate(query + key, activation)
        scores = torch.addcmul(scores, active, factor.reshape(-1, 1, 1))
    return scores


def activate(inner: Float[Tensor, "..."], activation: str) -> Float[Tensor, "..."]:
    """The activation of that name: gelu, relu, silu or tanh."""
    if activation == "gelu":
        return F.gelu(inner)
    if activation == "relu":
        return F.relu(inner)
    return F.silu(inner) if activation == "silu" else torch.tanh(inner)


def split_linear(
    tokens: Float[Tensor, "b h n i"],
    weight: Float[Tensor, "..."],
    bias: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "b h n o"]:
    """A linear map with weights (o, i) shared by the heads, or (h, o, i) of each head."""
    if weight.dim() == 2:
        return F.linear(tokens, weight, bias)
    product = tokens @ weight.transpose(-2, -1)
    return product if bias is None else product + bias.unsqueeze(-2)
