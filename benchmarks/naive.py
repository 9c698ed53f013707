"""Plain einsum code of named mechanisms: all pairs, heads and hidden units at once.

It is the reference for values (tests), time and memory (kernels.py) of our blocks. It uses the
graph and the weights of a block, and no computing code of the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.genome.mechanisms import MECHANISMS

Weights = Mapping[str, Tensor]


def naive(block: Any, x: Tensor) -> Tensor:
    """Return the output of a block for x, computed by plain einsum code with the block's weights.

    Args:
        block: attention from ``build_attention``, whose graph uses the operations in ``OPERATIONS``
            with their default parameters.
        x: input, shape (batch, tokens, dim), as is the output.
    """
    weights, graph = dict(block.named_parameters()), block.genome.to_dict()["graph_def"]
    values: dict[Any, Any] = {name: _stream(block, weights, x, name) for name in "qkv"}
    for index, node in enumerate(graph):
        prefix = f"{node['op']}_{index}."
        node_weights = {
            k.removeprefix(prefix): w for k, w in weights.items() if k.startswith(prefix)
        }
        operands = _repeated([values[ref] for ref in node["inputs"]])
        extras = {"x": x, "scale": (block.dim // block.heads) ** -0.5, "mask": _window(block, x)}
        values[index] = OPERATIONS[node["op"]](node_weights, extras, *operands)
    out = values[len(graph) - 1]
    if block.genome.projections.merge == "sum":
        merged = torch.einsum("bhid->bid", out)
    else:
        merged = out.transpose(1, 2).flatten(2)
    return F.linear(merged, weights["wo.weight"], weights["wo.bias"]) if _has_wo(block) else merged


def _stream(block: Any, weights: Weights, x: Tensor, name: str) -> Tensor:
    """Return q, k or v, projected if the block projects it: (batch, heads, tokens, width)."""
    projections = block.genome.projections
    is_whole = projections.merge == "sum" if name == "v" else projections.raw == "shared"
    width = block.dim if is_whole else block.dim // block.heads
    weight = weights.get(f"w{name}.weight")
    stream = x if weight is None else torch.einsum("bnd,ed->bne", x, weight)
    return stream.unflatten(-1, (-1, width)).transpose(1, 2)


def _has_wo(block: Any) -> bool:
    return bool(block.genome.projections.has_wo)


def _repeated(operands: list[Tensor]) -> list[Tensor]:
    """Return the operands, repeated to the largest number of heads."""
    heads = max(operand.shape[1] for operand in operands)
    return [o.repeat_interleave(heads // o.shape[1], dim=1) for o in operands]


def _window(block: Any, x: Tensor) -> Tensor | None:
    """Return the mask of visible pairs, (tokens, tokens); None if all pairs are visible."""
    visibility, n = block.genome.visibility, x.shape[1]
    if visibility.window is None:
        return None
    positions = torch.arange(n)
    near = (positions[:, None] - positions[None, :]).abs() <= visibility.window // 2
    is_global = positions < visibility.global_tokens
    return near | is_global[:, None] | is_global[None, :]


def _dot(weights: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    return torch.einsum("bhiw,bhjw->bhij", query, key) * extras["scale"]


def _qana(weights: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """Return scores by Eq. 3.1 of QANA: s·k / sqrt(w) + sum_l V_l gelu(U_l·k + b_l) + c."""
    heads, width = query.shape[1], query.shape[-1]
    tail = F.linear(extras["x"], weights["tail.weight"]).unflatten(-1, (heads, -1)).transpose(1, 2)
    hidden = (tail.shape[-1] - 1) // (width + 2)
    rows, out, bias, shift = tail.split((hidden * width, hidden, hidden, 1), dim=-1)
    rows = rows.unflatten(-1, (hidden, width))
    units = F.gelu(torch.einsum("bhilw,bhjw->bhijl", rows, key) + bias.unsqueeze(3))
    scores = torch.einsum("bhijl,bhil->bhij", units, out) + shift
    return scores + _dot(weights, extras, query, key)


def _additive(weights: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """Return scores of Bahdanau et al.: v·tanh(W_1 q + W_2 k)."""
    left = F.linear(query, weights["query_map.weight"]).unsqueeze(3)
    right = F.linear(key, weights["key_map.weight"]).unsqueeze(2)
    return torch.einsum("bhijm,m->bhij", torch.tanh(left + right), weights["out_weight"])


def _neural(weights: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """Return scores by Eqs. 3, 4 and 7 of Neural Attention: a network over [q; k] of each pair."""
    hidden = F.linear(_pairs(query, key), weights["hidden_weight"], weights["hidden_bias"])
    scores = torch.einsum("bhijm,m->bhij", F.gelu(hidden), weights["out_weight"])
    return scores + weights["out_bias"]


def _neural_authors(weights: Weights, extras: Any, query: Tensor, key: Tensor) -> Tensor:
    """Return scores of the authors' network of three layers over [q; k] of each pair."""
    hidden = _pairs(query, key)
    for name in ("first", "second"):
        hidden = F.relu(F.linear(hidden, weights[f"{name}_weight"], weights[f"{name}_bias"]))
    return F.linear(hidden, weights["third_weight"], weights["third_bias"]).squeeze(-1)


def _pairs(query: Tensor, key: Tensor) -> Tensor:
    """Return each query concatenated with each key: (batch, heads, queries, keys, 2 width)."""
    left = query.unsqueeze(3).expand(-1, -1, -1, key.shape[2], -1)
    right = key.unsqueeze(2).expand(-1, -1, query.shape[2], -1, -1)
    return torch.cat((left, right), dim=-1)


def _softmax(weights: Weights, extras: Any, scores: Tensor) -> Tensor:
    mask = extras["mask"]
    masked = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return torch.softmax(masked, dim=-1)


def _layer_norm(weights: Weights, extras: Any, tokens: Tensor) -> Tensor:
    return F.layer_norm(tokens, tokens.shape[-1:], weights["norm.weight"], weights["norm.bias"])


def _weighted_sum(_: Weights, extras: Any, weights: Tensor, tokens: Tensor) -> Tensor:
    return torch.einsum("bhij,bhjv->bhiv", weights, tokens)


OPERATIONS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "scaled_dot_product": _dot,
    "qana": _qana,
    "additive_attention_score": _additive,
    "neural_attention": _neural,
    "neural_attention_authors": _neural_authors,
    "softmax": _softmax,
    "sigmoid": lambda _, extras, scores: torch.sigmoid(scores),
    "uniform": lambda _, extras, keys: torch.full_like(
        keys[..., :1].expand(-1, -1, -1, keys.shape[2]), 1 / keys.shape[2]
    ),
    "gelu": lambda _, extras, tokens: F.gelu(tokens),
    "layer_norm": _layer_norm,
    "weighted_sum": _weighted_sum,
}


def named_with_naive_form() -> list[str]:
    """Return the names of the mechanisms all of whose operations have a naive form."""
    return [
        name
        for name, found in MECHANISMS.items()
        if {node.op for node in found.genome.nodes} <= OPERATIONS.keys()
    ]
