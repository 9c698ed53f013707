"""Linear attention and means from running sums.

    out_i = f(q_i) · sum_{j <= i} g(k_j)^T v_j / i

f and g are the features whose product is a score (Katharopoulos et al. 2020, section 3.3); what a
key adds to its scores for every query is one feature more. Of a mean the only feature is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nas.compiler.kernels.means import sums_so_far
from nas.compiler.kernels.runtime import by_head, repeat_heads
from nas.genome.primitives.products import unit_length

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nas.compiler.plan import Operand, Step
    from nas.costs.macs import Call
    from nas.genome import Ref
    from nas.genome.primitives.shapes import Key, Query, Sums, Values

    # An operand of a step for the new tokens; with as many heads as the step, or its own.
    Read = Callable[[Step, Operand, bool], Tensor]


class Features(NamedTuple):
    """What a score is the product of, and what each key adds to it."""

    query: Tensor
    key: Tensor
    bias: Tensor | None = None


def features(call: Call, modules: Mapping[int, Any], read: Read) -> tuple[Tensor, Tensor]:
    """The features of queries and keys, (b, h, m, w) and (b, g, m, w), h a multiple of g."""
    keys = [o for step in call.call.scores for o in step.operands if o.port.name == "key"]
    found: dict[Ref, Features] = {}
    for step in call.call.scores:
        # Heads that share their keys share their sums, where these are all that a score reads.
        given = [read(step, o, len(keys) > 1 or o is not keys[0]) for o in _tokens(step)]
        below = [o.ref for o in step.operands if o.is_paired]
        found[step.index] = _features(call, step, modules[step.index], given, below, found)
    query, key, bias = found[call.call.scores[-1].index]
    if bias is None:
        return query, key
    key = repeat_heads(key, query.shape[1])
    return torch.cat((query, torch.ones_like(query[..., :1])), -1), torch.cat((key, bias), -1)


def continued(
    query: Query, key: Key, values: Values, before: Tensor | None, start: int
) -> tuple[Sums, Float[Tensor, "b g w v"]]:
    """The outputs of the tokens from ``start`` on, and the sums after them, in 32 bits at least."""
    exact = torch.promote_types(values.dtype, torch.float32)
    query, key, own = (x.to(exact) for x in (query, key, values))
    groups, heads = (max(x.shape[1], own.shape[1]) for x in (key, query))
    sums = repeat_heads(key, groups).transpose(-2, -1) @ repeat_heads(own, groups)
    after = sums if before is None else before + sums
    query = repeat_heads(query, heads)
    if query.shape[2] == 1:
        out = query @ repeat_heads(after, heads)
    else:
        out = sums_so_far(query, key, own)
        if before is not None:
            out = out + query @ repeat_heads(before, heads)
    count = torch.arange(start + 1, start + 1 + query.shape[2], device=out.device, dtype=exact)
    return (out / count[:, None]).to(values.dtype), after


def _tokens(step: Step) -> list[Operand]:
    return [operand for operand in step.operands if not operand.is_paired]


def _features(
    call: Call,
    step: Step,
    module: Any,
    given: list[Tensor],
    below: list[Ref],
    found: Mapping[Ref, Features],
) -> Features:
    """Those of one score, as nas.compiler.features writes them."""
    name = step.primitive.name
    if name == "scaled_dot_product":
        return Features(given[0] * module.scale, given[1])
    if name == "bilinear":
        return Features(module.map(given[0]), given[1])
    if name == "cosine":
        return Features(by_head(unit_length(given[0]), module.factor), unit_length(given[1]))
    first, named = found[below[0]], call.products[below[0]]
    if name == "temperature":
        bias = None if first.bias is None else by_head(first.bias, module.factor)
        return first._replace(query=by_head(first.query, module.factor), bias=bias)
    if name == "key_bias":
        if named.key == _tokens(step)[0].variable:
            return first._replace(query=module.shifted(first.query))
        return first._replace(bias=_sum(module.of(given[0]), first.bias))
    assert name == "add", f"{name} is no product of features"
    second, other = found[below[1]], call.products[below[1]]
    bias = _sum(first.bias, second.bias)
    if named.key == other.key:
        return Features(first.query + second.query, first.key, bias)
    if named.query == other.query:
        return Features(first.query, first.key + second.key, bias)
    query = torch.cat((first.query, second.query), dim=-1)
    return Features(query, torch.cat((first.key, second.key), dim=-1), bias)


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of what there is."""
    if first is None or second is None:
        return first if second is None else second
    return first + second
