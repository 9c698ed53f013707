"""Attention as its equations read: plain einsum code, every pair, head and unit at once.

What the mechanisms are held against: in values (test_naive.py), in time and memory (kernels.py).
Of the package it takes the graph of a block and the weights, and nothing that computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

Weights = Mapping[str, Tensor]


def naive(block: Any, x: Tensor) -> Tensor:
    """What ``block`` gives for x, (b, n, d) to (b, n, d), with its own weights.

    Args:
        block: from ``build_attention``, of a graph whose operations are in ``OPERATIONS`` or
            below, with their default parameters.
    """
    weights, graph = dict(block.named_parameters()), block.genome.to_dict()["graph_def"]
    values: dict[Any, Any] = {name: _stream(block, weights, x, name) for name in "qkv"}
    for index, node in enumerate(graph):
        prefix = f"{node['op']}_{index}."
        own = {k.removeprefix(prefix): w for k, w in weights.items() if k.startswith(prefix)}
        operands = _repeated([values[ref] for ref in node["inputs"]])
        extras = {"x": x, "scale": (block.dim // block.heads) ** -0.5, "mask": _window(block, x)}
        values[index] = OPERATIONS[node["op"]](own, extras, *operands)
    out = values[len(graph) - 1]
    if block.genome.projections.merge == "sum":
        merged = torch.einsum("bhid->bid", out)
    else:
        merged = out.transpose(1, 2).flatten(2)
    return F.linear(merged, weights["wo.weight"], weights["wo.bias"]) if _has_wo(block) else merged


def _stream(block: Any, weights: Weights, x: Tensor, name: str) -> Tensor:
    """q, k or v, projected or not, cut into heads."""
    projections = block.genome.projections
    is_whole = projections.merge == "sum" if name == "v" else projections.raw == "shared"
    width = block.dim if is_whole else block.dim // block.heads
    weight = weights.get(f"w{name}.weight")
    stream = x if weight is None else torch.einsum("bnd,ed->bne", x, weight)
    return stream.unflatten(-1, (-1, width)).transpose(1, 2)


def _has_wo(block: Any) -> bool:
    return bool(block.genome.projections.has_wo)


def _repeated(operands: list[Tensor]) -> list[Tensor]:
    """Operands with as many heads as the one that has most."""
    heads = max(operand.shape[1] for operand in operands)
    return [o.repeat_interleave(heads // o.shape[1], dim=1) for o in operands]


def _window(block: Any, x: Tensor) -> Tensor | None:
    """Which of all pairs the mechanism allows; None for all."""
    sight, n = block.genome.visibility, x.shape[1]
    if sight.window is None:
        return None
    place = torch.arange(n)
    near = (place[:, None] - place[None, :]).abs() <= sight.window // 2
    is_global = place < sight.global_tokens
    return near | is_global[:, None] | is_global[None, :]


def _dot(own: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("bhiw,bhjw->bhij", query, key) * extras["scale"]


def _qana(own: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """Eq. 3.1 of QANA: s·k / sqrt(w) + sum_l V_l gelu(U_l·k + b_l) + c, tail by tail."""
    heads, width = query.shape[1], query.shape[-1]
    tail = F.linear(extras["x"], own["tail.weight"]).unflatten(-1, (heads, -1)).transpose(1, 2)
    hidden = (tail.shape[-1] - 1) // (width + 2)
    rows, out, bias, shift = tail.split((hidden * width, hidden, hidden, 1), dim=-1)
    rows = rows.unflatten(-1, (hidden, width))
    units = F.gelu(torch.einsum("bhilw,bhjw->bhijl", rows, key) + bias.unsqueeze(3))
    scores = torch.einsum("bhijl,bhil->bhij", units, out) + shift
    return scores + _dot(own, extras, query, key)


def _additive(own: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """v·tanh(W_1 q + W_2 k) of Bahdanau et al."""
    left = F.linear(query, own["query_map.weight"]).unsqueeze(3)
    right = F.linear(key, own["key_map.weight"]).unsqueeze(2)
    return torch.einsum("bhijm,om->bhij", torch.tanh(left + right), own["out.weight"])


def _neural(own: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """Eqs. 3, 4 and 7 of Neural Attention: a network over [q; k] of every pair."""
    hidden = F.linear(_pairs(query, key), own["hidden_weight"], own["hidden_bias"])
    return torch.einsum("bhijm,m->bhij", F.gelu(hidden), own["out_weight"]) + own["out_bias"]


def _neural_authors(own: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """The authors' network of three layers over [q; k] of every pair."""
    hidden = _pairs(query, key)
    for name in ("first", "second"):
        hidden = F.relu(F.linear(hidden, own[f"{name}.weight"], own[f"{name}.bias"]))
    return F.linear(hidden, own["third.weight"], own["third.bias"]).squeeze(-1)


def _pairs(query: Tensor, key: Tensor) -> Tensor:
    """Every query beside every key, (b, h, q, k, 2w)."""
    left = query.unsqueeze(3).expand(-1, -1, -1, key.shape[2], -1)
    right = key.unsqueeze(2).expand(-1, -1, query.shape[2], -1, -1)
    return torch.cat((left, right), dim=-1)


def _softmax(own: Weights, extras: Any, scores: Tensor) -> Tensor:
    mask = extras["mask"]
    seen = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return torch.softmax(seen, dim=-1)


def _layer_norm(own: Weights, extras: Any, tokens: Tensor) -> Tensor:
    return F.layer_norm(tokens, tokens.shape[-1:], own["norm.weight"], own["norm.bias"])


def _weighted_sum(own: Weights, extras: Any, weights: Tensor, tokens: Tensor) -> Tensor:
    return torch.einsum("bhij,bhjv->bhiv", weights, tokens)


OPERATIONS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "scaled_dot_product": _dot,
    "qana": _qana,
    "additive_attention_score": _additive,
    "neural_attention": _neural,
    "neural_attention_authors": _neural_authors,
    "softmax": _softmax,
    "sigmoid": lambda own, extras, scores: torch.sigmoid(scores),
    "uniform": lambda own, extras, keys: torch.full_like(
        keys[..., :1].expand(-1, -1, -1, keys.shape[2]), 1 / keys.shape[2]
    ),
    "gelu": lambda own, extras, tokens: F.gelu(tokens),
    "layer_norm": _layer_norm,
    "weighted_sum": _weighted_sum,
}
