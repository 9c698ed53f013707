"""Outputs of linear attention, and means of values, from running sums over earlier tokens.

    out_i = f(q_i) · sum_{j <= i} g(k_j)^T v_j / i, or without the division

The functions f and g map queries and keys to features whose product is a score (Katharopoulos et
al. 2020, section 3.3). If the scores have a bias per key, the keys have the bias and the queries
have the number 1 as an additional feature. For a mean, f and g return the single feature 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from nas.compiler.features import Features, features_of
from nas.compiler.kernels.gated import continue_gated_sums
from nas.compiler.kernels.means import sums_so_far
from nas.compiler.kernels.runtime import by_head, repeat_heads, with_bias
from nas.compiler.lowering import Lowered
from nas.compiler.plan import Operand, Step
from nas.genome.primitives.shapes import Gates, Key, Query, Sums, Values
from nas.genome.types import width_of

Read = Callable[[Step, Operand, bool], Tensor]


class _TensorOperations:
    """The arithmetic on tensors by which nas.compiler.features computes features."""

    def __init__(self, block: Any, modules: Mapping[int, Any], read: Read) -> None:
        self.block, self.modules, self.read = block, modules, read

    def operand(self, step: Step, operand: Operand, is_grouped: bool) -> Tensor:
        return self.read(step, operand, not is_grouped)

    def scale(self, step: Step) -> Any:
        assert step.rank is not None, "scores of tokens have a rank"
        return width_of(step.rank, self.block.dim, self.block.heads) ** -0.5

    def attribute(self, step: Step, name: str) -> Any:
        return getattr(self.modules[step.index], name)

    def method(self, step: Step, name: str, value: Tensor) -> Any:
        return self.attribute(step, name)(value)

    def slopes(self, step: Step) -> Any:
        raise NotImplementedError("linear attention has no slopes")

    def by_head(self, value: Tensor, factor: Tensor) -> Tensor:
        return by_head(value, factor)

    def times(self, first: Tensor, second: Tensor) -> Tensor:
        return first * second

    def plus(self, first: Tensor, second: Tensor) -> Tensor:
        return first + second

    def concatenated(self, first: Tensor, second: Tensor) -> Tensor:
        return torch.cat((first, second), dim=-1)

    def named(self, kind: str, step: Step, value: Tensor) -> Tensor:
        return value


def features(
    call: Lowered, block: Any, modules: Mapping[int, Any], read: Read
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Compute the features of the queries, (b, h, m, w), and of the keys, (b, g, m, w).

    The number g of key heads divides the number h of query heads. The third result is the forget
    gates between queries and keys, if there are any.

    Args:
        call: the fused call whose scores are products of features.
        block: a module with ``dim`` and ``heads``.
        modules: the modules of the steps, by index.
        read: function that returns an operand of a step. If its third argument is true, the heads
            of the operand are repeated to the step's number of heads.
    """
    score: Features[Any] = features_of(call, _TensorOperations(block, modules, read))
    query = score.query if score.scale is None else score.query * score.scale
    if score.bias is None:
        return query, score.key, score.gates
    return *with_bias(query, score.key, score.bias), None


def continued(
    query: Query,
    key: Key,
    values: Values,
    before: Tensor | None,
    start: int,
    divide: bool = True,
) -> tuple[Sums, Float[Tensor, "b g w v"]]:
    """Return the running sums after the new tokens, and the outputs of the new tokens.

    Args:
        query, key: the features of the new tokens.
        values: the values of the new tokens.
        before: the sums after the earlier tokens, in 32 bits at least; None if there are no earlier
            tokens.
        start: the position of the first new token.
        divide: whether outputs are divided by the number of tokens.
    """
    exact = torch.promote_types(values.dtype, torch.float32)
    query, key, exact_values = (x.to(exact) for x in (query, key, values))
    groups, heads = (max(x.shape[1], exact_values.shape[1]) for x in (key, query))
    sums = repeat_heads(key, groups).transpose(-2, -1) @ repeat_heads(exact_values, groups)
    after = sums if before is None else before + sums
    query = repeat_heads(query, heads)
    if query.shape[2] == 1:
        out = query @ repeat_heads(after, heads)
    else:
        out = sums_so_far(query, key, exact_values)
        if before is not None:
            out = out + query @ repeat_heads(before, heads)
    if not divide:
        return out.to(values.dtype), after
    count = torch.arange(start + 1, start + 1 + query.shape[2], device=out.device, dtype=exact)
    return (out / count[:, None]).to(values.dtype), after


def continued_with_gates(
    query: Query,
    key: Key,
    values: Values,
    gates: Gates,
    before: tuple[Tensor, Tensor] | None,
    start: int,
    divide: bool = True,
) -> tuple[Sums, tuple[Tensor, Tensor]]:
    """Return the outputs of the new tokens, and the state of ``continue_gated_sums`` after them."""
    heads = max(query.shape[1], values.shape[1])
    rows, columns, added, sums = (
        repeat_heads(x, heads).to(gates.dtype) for x in (query, key, values, gates)
    )
    out, after = continue_gated_sums(rows, columns, added, sums, before)
    if not divide:
        return out.to(values.dtype), after
    count = torch.arange(start + 1, start + 1 + query.shape[2], device=out.device, dtype=out.dtype)
    return (out / count[:, None]).to(values.dtype), after
