"""Compute the query and key features (tensors) whose dot products are the scores of a kernel call.

A score is scale * query·key^T + bias, where the bias is one number for each key. A cap may bound
this score. Slopes, one for each head, may then subtract slope * |i - j| for query i and key j.
Forget gates, whose summed logarithms are c, may subtract |c_i - c_j|.

The functions of this module work on any implementation of ``Operations``. ``TextOperations`` writes
the features as source, for example:

    query_0 = self.bilinear_0.query_features(q)
    query_1 = by_head(query_0, self.temperature_1.factor)

The operations of nas.costs.decoding compute the features as tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from nas.compiler.lowering import forms_of, is_shift

if TYPE_CHECKING:
    from nas.compiler.lowering import Lowered
    from nas.compiler.plan import Operand, Step
    from nas.compiler.source import Source

V = TypeVar("V")


@dataclass(frozen=True)
class Features(Generic[V]):
    """The terms of a score, each as a value of type ``V``: an expression in source, or a tensor.

    Attributes:
        query: features of the queries.
        key: features of the keys.
        scale: the factor of query·key^T; None for no factor.
        bias: one number for each key, which is added to the key's scores; None for no bias.
        slopes: the penalty of each head for a unit of distance between query and key; None for no
            penalty.
        cap: the bound of scale * query·key^T + bias; None for no bound.
        gates: forget gates that multiply the products; None for no gates.
        decay: sums of forget gates at the queries and at the keys; None for no decay.
    """

    query: V
    key: V
    scale: V | None = None
    bias: V | None = None
    slopes: V | None = None
    cap: float | None = None
    gates: V | None = None
    decay: tuple[V, V] | None = None


class Operations(Protocol[V]):
    """Operations on values of type ``V``, which are either expressions in source or tensors."""

    def operand(self, step: Step, operand: Operand, is_grouped: bool) -> V:
        """Return the value of a step's operand.

        Args:
            is_grouped: whether to return the operand with its own number of heads. Otherwise its
                heads are repeated if the step has more heads.
        """

    def scale(self, step: Step) -> V:
        """Return the factor 1 / sqrt(r) of a step's scores, where r is the width ``step.rank``."""

    def attribute(self, step: Step, name: str) -> V:
        """Return the attribute ``name`` of the step's module."""

    def method(self, step: Step, name: str, value: V) -> V:
        """Return the result of the method ``name`` of the step's module, called with a value."""

    def slopes(self, step: Step) -> V:
        """Return the step's slopes: the penalty of each head for a unit of distance."""

    def by_head(self, value: V, factor: V) -> V:
        """Return a value with each head multiplied by its factor."""

    def times(self, first: V, second: V) -> V:
        """Return the product of two values."""

    def plus(self, first: V, second: V) -> V:
        """Return the sum of two values."""

    def concatenated(self, first: V, second: V) -> V:
        """Return two values concatenated along the feature dimension."""

    def named(self, kind: str, step: Step, value: V) -> V:
        """Assign a value to a variable named after ``kind`` and step, and return the variable."""


def features_of(call: Lowered, operations: Operations[V]) -> Features[V]:
    """Return the features of the scores that a kernel call normalises to attention weights."""
    forms = forms_of(call, {})
    parts: dict[Any, Features[V]] = {}
    # Concatenated features of several products need equal head counts.
    is_one_product = sum(step.primitive.factors is not None for step in call.scores) == 1
    is_grouped = call.is_grouped and is_one_product
    for step in call.scores:
        below = [operand.ref for operand in step.operands if operand.is_paired]
        if not below:
            parts[step.index] = _product(step, operations, is_grouped)
        elif len(below) == 1:
            is_shifted = is_shift(step, forms[below[0]])
            parts[step.index] = _changed(step, operations, parts[below[0]], is_shifted)
        else:
            first, second = (forms[ref] for ref in below)
            has_same = first.key == second.key, first.query == second.query
            scores = parts[below[0]], parts[below[1]]
            parts[step.index] = _sum(step, operations, *scores, *has_same)
    return parts[call.scores[-1].index]


def _product(step: Step, operations: Operations[V], is_grouped: bool) -> Features[V]:
    factors, named = step.primitive.factors, operations.named
    assert factors is not None, "scores of tokens declare their factors"
    query = operations.operand(step, step.operands[0], False)
    tokens = operations.operand(step, step.operands[1], is_grouped)
    key, bias = tokens, None
    scale: V | None = operations.scale(step) if factors.is_scaled else None
    if factors.query:
        query = named("query", step, operations.method(step, factors.query, query))
    if factors.key:
        key = named("key", step, operations.method(step, factors.key, tokens))
    if factors.bias:
        if scale is not None:
            query, scale = named("query", step, operations.times(query, scale)), None
        bias = named("bias", step, operations.method(step, factors.bias, tokens))
    gates = operations.operand(step, step.operands[2], False) if factors.is_gated else None
    return Features(query, key, scale, bias, gates=gates)


def _changed(
    step: Step, operations: Operations[V], score: Features[V], is_shifted: bool
) -> Features[V]:
    change, named = step.primitive.score_change, operations.named
    assert change is not None, "changes of scores are declared"
    if change.cap:
        return replace(score, cap=cast("float", step.params[change.cap]))
    if change.slopes:
        added = _total(operations, operations.slopes(step), score.slopes)
        return replace(score, slopes=named("slopes", step, added))
    if change.decays:
        rows, keys = (operations.operand(step, operand, False) for operand in step.operands[1:])
        return replace(score, decay=_decay_of(step, operations, score.decay, (rows, keys)))
    if change.factor:
        factor = operations.attribute(step, change.factor)
        whole = factor if score.scale is None else operations.times(factor, score.scale)
        query = named("query", step, operations.by_head(score.query, whole))
        bias, slopes = score.bias, score.slopes
        if bias is not None:
            bias = named("bias", step, operations.by_head(bias, factor))
        if slopes is not None:
            slopes = named("slopes", step, operations.times(slopes, factor))
        return replace(score, query=query, scale=None, bias=bias, slopes=slopes)
    if is_shifted and change.shifted:
        query = operations.method(step, change.shifted, _scaled(operations, score, score.query))
        return replace(score, query=named("query", step, query), scale=None)
    assert change.bias, "a change without any attribute is a sum of two scores"
    tokens = operations.operand(step, step.operands[1], False)
    bias = _total(operations, operations.method(step, change.bias, tokens), score.bias)
    return replace(score, bias=named("bias", step, bias))


def _sum(
    step: Step,
    operations: Operations[V],
    first: Features[V],
    second: Features[V],
    has_same_key: bool,
    has_same_query: bool,
) -> Features[V]:
    """Return the features of the sum of two scores.

    Query features are added if the key features are equal, key features are added if the query
    features are equal, and otherwise both are concatenated.
    """
    bias, slopes = (
        _sum_of("bias", step, operations, first.bias, second.bias),
        _sum_of("slopes", step, operations, first.slopes, second.slopes),
    )
    decay = _decay_of(step, operations, first.decay, second.decay)
    if has_same_query and not has_same_key:
        keys = (_scaled(operations, score, score.key) for score in (first, second))
        key = operations.named("key", step, operations.plus(*keys))
        return Features(first.query, key, None, bias, slopes, decay=decay)
    queries = (_scaled(operations, score, score.query) for score in (first, second))
    if has_same_key:
        query = operations.named("query", step, operations.plus(*queries))
        return Features(query, first.key, None, bias, slopes, decay=decay)
    query = operations.named("query", step, operations.concatenated(*queries))
    key = operations.named("key", step, operations.concatenated(first.key, second.key))
    return Features(query, key, None, bias, slopes, decay=decay)


def _scaled(operations: Operations[V], score: Features[V], value: V) -> V:
    return value if score.scale is None else operations.times(value, score.scale)


def _total(operations: Operations[V], first: V, second: V | None) -> V:
    return first if second is None else operations.plus(first, second)


def _sum_of(
    kind: str, step: Step, operations: Operations[V], first: V | None, second: V | None
) -> V | None:
    """Return the sum of two values, where None stands for zero.

    If neither value is None, the sum is assigned to a variable named after ``kind`` and the step.
    """
    if first is None or second is None:
        return second if first is None else first
    return operations.named(kind, step, operations.plus(first, second))


def _decay_of(
    step: Step, operations: Operations[V], first: tuple[V, V] | None, second: tuple[V, V] | None
) -> tuple[V, V] | None:
    """Return the summed logarithms of the product of two forget gates; None stands for no gates.

    Neither sum increases from token to token, so |c_i - c_j| of the total is the total of both.
    """
    if first is None or second is None:
        return second if first is None else first
    rows, keys = (operations.plus(*pair) for pair in zip(first, second, strict=True))
    return operations.named("rows", step, rows), operations.named("decay", step, keys)


class TextOperations:
    """Operations on features that are expressions in source.

    Attributes:
        lines: the statements that assign features to variables.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines: list[str] = []

    def operand(self, step: Step, operand: Operand, is_grouped: bool) -> str:
        """Return the expression for a step's operand, with repeated heads unless ``is_grouped``."""
        read = self.source.names if is_grouped else self.source.arguments
        return read(step)[step.operands.index(operand)]

    def scale(self, step: Step) -> str:
        """Return the expression ``self.scale_<index>`` for the factor of a step's scores."""
        return self.source.scale(step)

    def attribute(self, step: Step, name: str) -> str:
        """Return the expression for the attribute ``name`` of the step's module."""
        self.source.called.add(step.index)
        return f"self.{step.module}.{name}"

    def method(self, step: Step, name: str, value: str) -> str:
        """Return the expression that calls the method ``name`` of the step's module."""
        return f"{self.attribute(step, name)}({value})"

    def slopes(self, step: Step) -> str:
        """Return the expression that calls the function for the slopes of the step's primitive."""
        change = step.primitive.score_change
        assert change is not None, "a step with slopes declares them"
        assert change.slopes is not None, "a step with slopes declares them"
        self.source.used.append(change.slopes)
        return f"{change.slopes.__name__}({self.source.heads[step.heads]}, x)"

    def by_head(self, value: str, factor: str) -> str:
        """Return the expression ``by_head(value, factor)``."""
        return f"by_head({value}, {factor})"

    def times(self, first: str, second: str) -> str:
        """Return the expression ``first * second``."""
        return f"{first} * {second}"

    def plus(self, first: str, second: str) -> str:
        """Return the expression ``first + second``."""
        return f"{first} + {second}"

    def concatenated(self, first: str, second: str) -> str:
        """Return the expression that concatenates both values along the feature dimension."""
        return f"torch.cat(({first}, {second}), dim=-1)"

    def named(self, kind: str, step: Step, value: str) -> str:
        """Add a statement that assigns a value to a variable, and return the variable."""
        name = f"{kind}_{step.index}"
        self.lines.append(f"{name} = {value}")
        return name
