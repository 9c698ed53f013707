"""Lowering: replace aggregations of a plan by calls that store no tensor of all weights.

Primitives declare how their scores are products of features and which weights a normaliser computes
(nas.genome.primitives.factors). Products under softmax run in fused kernels, whose memory is linear
in the length; so do slopes and caps over the products, if a device has a kernel. Weights that equal
the scores become sums over the keys (Katharopoulos et al. 2020), and a mean needs no scores. Tests
compare every rule with the interpreter, which uses none.

A rule is the name of a primitive, or one of ``SHARING``. Each can be disabled separately, and each
saves at least 5 % of a training step at 65 tokens, or 20 % at 1,024. nas.compiler.features computes
the operands of a call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from nas.common.config import near
from nas.common.errors import ConfigError
from nas.genome import Ref
from nas.genome.primitives import get, names
from nas.genome.primitives.factors import Weights

if TYPE_CHECKING:
    from nas.compiler.plan import Operand, Plan, Step

    Readers = Mapping[Ref, list[Step]]
    Calls = Mapping[int, "Lowered"]

SHARING: Final = (
    "same_scores",  # each call recomputes scores that several normalisers read
    "same_weights",  # aggregations by the same weights become one with concatenated values
    "shared_weights",  # value heads that share a head of weights are concatenated
)


@dataclass(frozen=True)
class Lowered:
    """A call that replaces aggregations.

    Attributes:
        sums: the aggregations, all by the weights of ``normaliser``.
        scores: the steps that compute its scores, the last one its operand; empty for a mean.
        weights: the kind of the normaliser's weights.
    """

    sums: tuple[Step, ...]
    normaliser: Step
    scores: tuple[Step, ...]
    weights: Weights

    @property
    def is_grouped(self) -> bool:
        """Whether heads that share keys and values share the sums over keys."""
        return self.weights.is_by_sums

    @property
    def shares_weights(self) -> bool:
        """Whether several value heads share a head of weights."""
        return bool(self.scores) and self.sums[0].operands[0].is_repeated

    @property
    def has_silent_key(self) -> bool:
        """Whether softmax runs over an additional key with score and value zero."""
        return self.weights is Weights.SOFTMAX_ONE

    @property
    def is_linear(self) -> bool:
        """Whether the weights are the scores over the number of keys."""
        return self.weights is Weights.LINEAR

    @property
    def read(self) -> Iterator[Operand]:
        """The tokens that the call reads."""
        for step in (*self.scores, *self.sums):
            yield from (operand for operand in step.operands if not operand.is_paired)


class Form(NamedTuple):
    """A score as a product: names of its features, their width, whether keys have a bias."""

    query: str
    key: str
    width: int
    has_bias: bool


def forms_of(call: Lowered, widths: Mapping[int, int]) -> dict[Ref, Form]:
    """The scores of a call as products, by step.

    The sum of two scores with the same keys (or queries) is the product of a sum; other sums are
    products of concatenated features.

    Args:
        widths: operand width of each score, by step.
    """
    forms: dict[Ref, Form] = {}
    for step in call.scores:
        below = [forms[operand.ref] for operand in step.operands if operand.is_paired]
        forms[step.index] = _form(step, below, widths.get(step.index, 0))
    return forms


def _form(step: Step, below: list[Form], width: int) -> Form:
    query, key = f"query_{step.index}", f"key_{step.index}"
    factors, change = step.primitive.factors, step.primitive.score_change
    if factors is not None:
        stream_query, stream_key = (operand.variable for operand in step.operands)
        is_stream = factors.query is factors.bias is None  # with a bias, queries are scaled first
        return Form(
            stream_query if is_stream else query,
            stream_key if factors.key is None else key,
            factors.width(width, step.params),
            factors.bias is not None,
        )
    assert change is not None, f"{step.primitive.name} declares no product"
    first = below[0]
    if len(below) == 2:
        second = below[1]
        has_bias = first.has_bias or second.has_bias
        if first.key == second.key:
            return Form(query, first.key, first.width, has_bias)
        if first.query == second.query:
            return Form(first.query, key, first.width, has_bias)
        return Form(query, key, first.width + second.width, has_bias)
    if change.factor:
        return first._replace(query=query)
    if change.bias:
        is_shifted = is_shift(step, first)
        return first._replace(query=query) if is_shifted else first._replace(has_bias=True)
    return first


def is_shift(step: Step, below: Form) -> bool:
    """Whether a bias depends on the same keys as the product, so that it can shift the queries."""
    change = step.primitive.score_change
    keys = (operand.variable for operand in step.operands if not operand.is_paired)
    return change is not None and change.shifted is not None and below.key in keys


def rules() -> tuple[str, ...]:
    """The names of all rules; softmax is always lowered and no rule."""
    declared = []
    for name in names():
        primitive = get(name)
        weights = primitive.weights(primitive.defaults())
        if primitive.factors or primitive.score_change or weights not in (None, Weights.SOFTMAX):
            declared.append(name)
    return (*declared, *SHARING)


def chosen_rules(fuse: bool | Collection[str]) -> frozenset[str]:
    """The rules that ``fuse`` selects: all, none, or the named ones.

    Raises:
        ConfigError: a name is no rule.
    """
    rule_names = rules()
    if isinstance(fuse, bool):
        return frozenset(rule_names if fuse else ())
    chosen = (fuse,) if isinstance(fuse, str) else fuse
    for name in chosen:
        if name not in rule_names:
            raise ConfigError(
                f"fuse: found {name!r}; expected True, False or a collection of "
                f"{', '.join(rule_names)}{near(name, rule_names)}."
            )
    return frozenset(chosen)


def lower(plan: Plan, chosen: Collection[str] | None = None) -> dict[int, Lowered]:
    """The calls that replace a plan's aggregations, by the index of their first aggregation.

    Args:
        chosen: names of rules; None for all.
    """
    chosen = {*(step.primitive.name for step in plan.steps), *SHARING} if chosen is None else chosen
    readers: defaultdict[Ref, list[Step]] = defaultdict(list)
    for step in plan.steps:
        for operand in step.operands:
            readers[operand.ref].append(step)
    calls: dict[int, Lowered] = {}
    for step in plan.steps:
        for call in _calls(plan, step, readers, chosen):
            calls[call.sums[0].index] = call
    # If another step reads the scores, they are computed anyway, and a call saves nothing.
    while late := [i for i, call in calls.items() if _is_read(call, live(plan, calls))]:
        for index in late:
            del calls[index]
    return calls


def live(plan: Plan, calls: Calls) -> set[Ref]:
    """The streams and steps that are needed when calls replace aggregations."""
    of_step = {step.index: call for call in calls.values() for step in call.sums}
    live: set[Ref] = {plan.steps[-1].index}
    for step in reversed(plan.steps):
        if step.index in live:
            read = of_step[step.index].read if step.index in of_step else step.operands
            live.update(operand.ref for operand in read)
    return live


def uncalled(plan: Plan, calls: Calls) -> set[int]:
    """The steps without a call: unread ones, and all aggregations of a call but the first."""
    needed = live(plan, calls)
    later = {step.index for call in calls.values() for step in call.sums[1:]}
    return later | {step.index for step in plan.steps if step.index not in needed}


def _is_read(call: Lowered, needed: set[Ref]) -> bool:
    return any(step.index in needed for step in (*call.scores, call.normaliser))


def _calls(
    plan: Plan, normaliser: Step, readers: Readers, chosen: Collection[str]
) -> Iterator[Lowered]:
    """The calls of the aggregations that read a normaliser's weights."""
    weights = normaliser.primitive.weights(normaliser.params)
    sums = tuple(readers[normaliser.index])
    is_chosen = weights is Weights.SOFTMAX or normaliser.primitive.name in chosen
    if weights is None or not is_chosen or not all(s.primitive.sums_values for s in sums):
        return
    if weights is Weights.MEAN:
        for step in sums:
            yield Lowered((step,), normaliser, (), weights)
        return
    scores = _scores(plan, normaliser.operands[0].ref, normaliser, readers, chosen)
    if scores and _are_one_call(normaliser, sums, chosen):
        steps, shape = scores
        takes = shape.has_query_term <= weights.ignores_shifts
        if takes and (shape.has_slopes or shape.has_cap) <= weights.takes_shapes:
            once = tuple({step.index: step for step in steps}.values())
            yield Lowered(sums, normaliser, once, weights)


def _are_one_call(normaliser: Step, sums: tuple[Step, ...], chosen: Collection[str]) -> bool:
    """Whether one call can replace all aggregations by the same weights."""
    if normaliser.is_filtered or not sums:
        return False
    if any(step.operands[0].is_repeated for step in sums):
        return len(sums) == 1 and "shared_weights" in chosen
    # Values that depend on an earlier aggregation cannot be concatenated with its values.
    are_ready = all(step.stage == sums[0].stage for step in sums)
    return len(sums) == 1 or ("same_weights" in chosen and are_ready)


class _Shape(NamedTuple):
    """The parts of a score beside products and biases of keys."""

    has_query_term: bool = False
    has_slopes: bool = False
    has_cap: bool = False


def _scores(
    plan: Plan, ref: Ref, reader: Step, readers: Readers, chosen: Collection[str]
) -> tuple[tuple[Step, ...], _Shape] | None:
    """The steps of a score and its further parts; None if a step declares no product."""
    assert isinstance(ref, int), "scores are never streams"
    step = plan.steps[ref]
    factors, change = step.primitive.factors, step.primitive.score_change
    is_free = len(readers[ref]) == 1 or "same_scores" in chosen
    # Sums of scores with different head counts are 1.5 times faster uncalled, at 65 tokens.
    if step.primitive.name not in chosen or not is_free or step.heads != reader.heads:
        return None
    if factors is not None:
        return (step,), _Shape(has_query_term=factors.has_query_term)
    if change is None:
        return None
    parts: tuple[Step, ...] = ()
    shape = _Shape()
    for operand in (o for o in step.operands if o.is_paired):
        below = _scores(plan, operand.ref, reader, readers, chosen)
        if below is None:
            return None
        parts += below[0]
        shape = _Shape(*(first or second for first, second in zip(shape, below[1], strict=True)))
    if change.cap:
        return None if any(shape) else ((*parts, step), _Shape(has_cap=True))
    if change.slopes:
        return (*parts, step), shape._replace(has_slopes=True)
    # A cap comes after all products, slopes after the cap.
    return None if shape.has_cap else ((*parts, step), shape)
