"""Lowering: replace score, normaliser and aggregation steps of a plan by one kernel call.

A kernel is a function that does not store the attention weights of all pairs of tokens. Primitives
declare how their scores are dot products of query and key features, and which kind of weights a
normaliser computes (nas.genome.primitives.factors). Softmax attention over such scores runs in a
fused kernel, whose memory is linear in the number of tokens. If weights are scores divided by the
number of keys, the kernel sums key^T·values over the keys first (Katharopoulos et al. 2020). If all
weights are equal, the kernel computes a mean without scores.

A rule of lowering is the name of a primitive, or a name in ``SHARING``, and can be disabled. A
primitive's rule permits kernel calls that replace the primitive. Tests compare each rule with the
reference interpreter, which uses no rule. nas.compiler.features computes the operands of kernel
calls.
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
from nas.genome.signs import is_non_negative

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
    """A kernel call that replaces score, normaliser and aggregation steps of a plan.

    Attributes:
        sums: the aggregations, which are the steps that sum values by the normaliser's weights.
        normaliser: the step that turns scores into attention weights.
        scores: the steps that compute the scores, in order; empty for a mean, which needs no
            scores.
        weights: the kind of weights that the normaliser computes.
    """

    sums: tuple[Step, ...]
    normaliser: Step
    scores: tuple[Step, ...]
    weights: Weights

    @property
    def is_grouped(self) -> bool:
        """Whether the kernel takes keys and values with fewer heads than the queries."""
        return self.weights.is_by_sums and not self.is_gated

    @property
    def is_gated(self) -> bool:
        """Whether forget gates multiply the products of query and key."""
        return any(s.primitive.factors and s.primitive.factors.is_gated for s in self.scores)

    @property
    def shares_weights(self) -> bool:
        """Whether the values have more heads than the weights, so that heads share weights."""
        return bool(self.scores) and self.sums[0].operands[0].is_repeated

    @property
    def has_silent_key(self) -> bool:
        """Whether the softmax includes an additional key, with value zero."""
        return self.weights in (Weights.SOFTMAX_ONE, Weights.SOFTMAX_SINK)

    @property
    def is_linear(self) -> bool:
        """Whether the weights are the scores, up to a factor of each query."""
        return self.weights.is_linear

    @property
    def is_ratio(self) -> bool:
        """Whether the weights are the scores divided by their sum, which the kernel computes."""
        return self.weights is Weights.RATIO

    @property
    def read(self) -> Iterator[Operand]:
        """Yield the operands of the replaced steps that are tokens, and not scores or weights."""
        for step in (*self.scores, *self.sums):
            yield from (operand for operand in step.operands if not operand.is_paired)


class Form(NamedTuple):
    """A score as a dot product of query features and key features.

    Attributes:
        query: name of the query features; equal names stand for equal features.
        key: name of the key features; equal names stand for equal features.
        width: number of features.
        has_bias: whether a number for each key is added to the product.
    """

    query: str
    key: str
    width: int
    has_bias: bool


def forms_of(call: Lowered, widths: Mapping[int, int]) -> dict[Ref, Form]:
    """Return the form of each score of a kernel call, by index of the step that computes it.

    The sum of two scores with equal key features keeps these and adds the query features, and vice
    versa. All other sums concatenate both features.

    Args:
        widths: width of the tokens from which a step computes scores, by index of the step.
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
        stream_query, stream_key = (operand.variable for operand in step.operands[:2])
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
    """Whether the bias that a step adds to a score can be added to the queries instead.

    This is possible only if the step computes the bias from the tokens that are the score's key
    features.

    Args:
        below: the form of the score without the bias.
    """
    change = step.primitive.score_change
    keys = (operand.variable for operand in step.operands if not operand.is_paired)
    return change is not None and change.shifted is not None and below.key in keys


def rules() -> tuple[str, ...]:
    """Return the names of all rules of lowering, each of which permits some kernel calls.

    Softmax is not a rule, because the lowering of softmax cannot be disabled.
    """
    declared = []
    for name in names():
        primitive = get(name)
        weights = primitive.weights(primitive.defaults())
        if primitive.factors or primitive.score_change or weights not in (None, Weights.SOFTMAX):
            declared.append(name)
    return (*declared, *SHARING)


def chosen_rules(fuse: bool | Collection[str]) -> frozenset[str]:
    """Return the names of the rules that ``fuse`` selects: True all rules, False none, or names.

    Raises:
        ConfigError: a name is not the name of a rule.
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
    """Return the kernel calls of a plan, by index of the first aggregation that each call replaces.

    Args:
        chosen: names of the rules of lowering that may be used; None for all rules.
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
    """Return names of streams and indices of steps that are needed to compute the output.

    Args:
        calls: the kernel calls, which read tokens in place of scores and weights.
    """
    of_step = {step.index: call for call in calls.values() for step in call.sums}
    live: set[Ref] = {plan.steps[-1].index}
    for step in reversed(plan.steps):
        if step.index in live:
            read = of_step[step.index].read if step.index in of_step else step.operands
            live.update(operand.ref for operand in read)
    return live


def uncalled(plan: Plan, calls: Calls) -> set[int]:
    """Return the indices of the steps for which generated source contains no lines.

    These are the steps whose results the output does not need, and every aggregation of a kernel
    call except the first.
    """
    needed = live(plan, calls)
    later = {step.index for call in calls.values() for step in call.sums[1:]}
    return later | {step.index for step in plan.steps if step.index not in needed}


def _is_read(call: Lowered, needed: set[Ref]) -> bool:
    return any(step.index in needed for step in (*call.scores, call.normaliser))


def _calls(
    plan: Plan, normaliser: Step, readers: Readers, chosen: Collection[str]
) -> Iterator[Lowered]:
    """Yield kernel calls, each of which can replace a normaliser and the aggregations that read it.

    Args:
        readers: for each input and each step of the plan, the steps that read it.
        chosen: names of the lowering rules that may be used.
    """
    weights = normaliser.primitive.weights(normaliser.params)
    sums = tuple(readers[normaliser.index])
    is_chosen = weights is Weights.SOFTMAX or normaliser.primitive.name in chosen
    if weights is None or not is_chosen or not all(s.primitive.sums_values for s in sums):
        return
    if weights is Weights.MEAN:
        for step in sums:
            yield Lowered((step,), normaliser, (), weights)
        return
    if weights is Weights.RATIO and not is_non_negative(plan.genome, normaliser.operands[0].ref):
        return
    scores = _scores(plan, normaliser.operands[0].ref, normaliser, readers, chosen)
    if scores and _are_one_call(normaliser, sums, chosen):
        steps, shape = scores
        takes = shape.has_query_term <= weights.ignores_shifts
        takes = takes and shape.has_gates <= weights.is_linear
        is_shaped = shape.has_slopes or shape.has_cap or shape.has_decay
        if takes and is_shaped <= weights.takes_shapes:
            once = tuple({step.index: step for step in steps}.values())
            yield Lowered(sums, normaliser, once, weights)


def _are_one_call(normaliser: Step, sums: tuple[Step, ...], chosen: Collection[str]) -> bool:
    """Whether one kernel call can replace ``sums``, all aggregations by a normaliser's weights."""
    if normaliser.is_filtered or not sums:
        return False
    if any(step.operands[0].is_repeated for step in sums):
        return len(sums) == 1 and "shared_weights" in chosen
    # Values that depend on an earlier aggregation cannot be concatenated with its values.
    are_ready = all(step.stage == sums[0].stage for step in sums)
    return len(sums) == 1 or ("same_weights" in chosen and are_ready)


class _Shape(NamedTuple):
    """The additional terms of a score, apart from its product of features and its key bias.

    Attributes:
        has_query_term: whether a number for each query is added.
        has_slopes: whether slope * |i - j| is subtracted, with one slope for each head.
        has_cap: whether the score is bounded by ``cap * tanh(score / cap)``.
        has_gates: whether forget gates multiply the product.
        has_decay: whether |c_i - c_j| is subtracted, with the sums c of forget gates.
    """

    has_query_term: bool = False
    has_slopes: bool = False
    has_cap: bool = False
    has_gates: bool = False
    has_decay: bool = False


def _scores(
    plan: Plan, ref: Ref, reader: Step, readers: Readers, chosen: Collection[str]
) -> tuple[tuple[Step, ...], _Shape] | None:
    """Return the steps that compute a score, and the additional terms of the score.

    Args:
        ref: index of the step whose result is the score.
        reader: the normaliser that reads the whole score.
        readers, chosen: as in ``_calls``.

    Returns:
        None if no kernel can compute the score, or if the rule of a step is not chosen.
    """
    assert isinstance(ref, int), "scores are never streams"
    step = plan.steps[ref]
    factors, change = step.primitive.factors, step.primitive.score_change
    is_free = len(readers[ref]) == 1 or "same_scores" in chosen
    # Sums of scores with different head counts are 1.5 times faster uncalled, at 65 tokens.
    if step.primitive.name not in chosen or not is_free or step.heads != reader.heads:
        return None
    if factors is not None:
        return (step,), _Shape(factors.has_query_term, has_gates=factors.is_gated)
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
    if shape.has_gates and not change.factor:
        return None
    if shape.has_decay and change.factor:  # a negative factor would make the penalty a gain
        return None
    if change.cap:
        return None if any(shape) else ((*parts, step), _Shape(has_cap=True))
    if change.slopes:
        return (*parts, step), shape._replace(has_slopes=True)
    if change.decays:
        return (*parts, step), shape._replace(has_decay=True)
    # A cap comes after all products, slopes and decay after the cap.
    return None if shape.has_cap else ((*parts, step), shape)
