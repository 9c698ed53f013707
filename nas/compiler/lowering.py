"""Lowering: replace score, normaliser and aggregation of a plan by one kernel call.

A kernel is a function that does not store the attention weights of all pairs of tokens. These
chains of primitives have a kernel; every other mechanism runs step by step.

==================  ===============================  ==============================================
score               normaliser                       kernel
==================  ===============================  ==============================================
scaled_dot_product  softmax                          torch's fused attention
the same            softmax and ``head_difference``  the same, with the values of two heads
the same, changed   softmax, with a sink or without  the same, with biases and a sink as keys
scaled_dot_product  softmax_free, ratio              query·(key^T·values), Katharopoulos et al. 2020
gated_product       softmax_free, ratio              the same in chunks, Yang et al. 2024
quadratic_product   softmax_free, ratio              the same with the products of features
any                 uniform                          a mean of the values
==================  ===============================  ==============================================

Changes of a score are ``decay`` and ``key_bias``; FlexAttention, on a GPU, computes others, too
(``flexible_calls``). ``ratio`` is lowered only if its scores are provably not negative.

A sum of values is linear in the weights, so that the sum of a difference of weights is a difference
of sums (``distributed``). Lowering other scores, such as bilinear or capped ones, saves no time at
the sizes of a search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nas.compiler.kernels.attention import linear_attention, visible_mean
from nas.compiler.kernels.flexible import CHANGES
from nas.compiler.kernels.gated import gated_linear_attention
from nas.compiler.kernels.quadratic import quadratic_attention, quadratic_width
from nas.compiler.kernels.softmax import biased_attention, differential_attention, softmax_attention
from nas.compiler.plan import Operand
from nas.genome import Ref
from nas.genome.primitives.base import Kind
from nas.genome.types import is_non_negative

if TYPE_CHECKING:
    from nas.compiler.plan import Plan, Step

    Calls = Mapping[int, "Lowered"]

_PLAIN: Final = ("scaled_dot_product",)
_LINEAR: Final = ("scaled_dot_product", "gated_product", "quadratic_product")


class Kernels(NamedTuple):
    """The scores that kernels compute for each normaliser, and the changes of scores."""

    products: Mapping[str, tuple[str, ...]]
    changes: tuple[str, ...]


KERNELS: Final = Kernels(
    dict.fromkeys(("softmax", "softmax_one", "softmax_sink"), _PLAIN)
    | dict.fromkeys(("softmax_free", "ratio"), _LINEAR),
    ("decay", "key_bias"),
)
FLEXIBLE: Final = Kernels(
    dict.fromkeys(("softmax", "softmax_one", "softmax_sink", "sigmoid"), _PLAIN), tuple(CHANGES)
)
STICK_BREAKING: Final = Kernels({"stick_breaking": _PLAIN}, ())
# Linear in the weights, and elementwise up to a factor of each head.
_COMBINED: Final = ("add", "difference")


@dataclass(frozen=True)
class Lowered:
    """A kernel call that replaces a score, a normaliser and an aggregation of a plan."""

    sum: Step  # the aggregation, in whose place the kernel is called
    normaliser: Step
    score: Step | None = None  # None for a mean, which needs no scores
    changes: tuple[Step, ...] = ()  # between score and normaliser
    mix: Step | None = None  # a difference of neighbouring heads, after the normaliser
    rule: Step | None = None  # the delta rule that computes the values

    @property
    def steps(self) -> tuple[Step, ...]:
        """The replaced steps, in order."""
        steps = (self.rule, self.score, *self.changes, self.normaliser, self.mix, self.sum)
        return tuple(step for step in steps if step is not None)

    @property
    def function(self) -> Any:
        """The kernel's function."""
        if self.score is None:
            return visible_mean
        if self.is_linear:
            if self.is_quadratic:
                return quadratic_attention
            return gated_linear_attention if self.is_gated else linear_attention
        if self.mix is not None:
            return differential_attention
        return biased_attention if self.changes or self.has_sink else softmax_attention

    @property
    def operands(self) -> list[tuple[Operand, str]]:
        """The query, key and values of the kernel, or its values: each with its head label.

        Gates, and an operand of each change of the scores, follow. Linear attention and means
        compute sums over keys once for all heads that share the keys. The values of a delta rule
        are its tokens.
        """
        heads, values = self.sum.heads, (self.rule or self.sum).operands[1]
        if self.score is None:
            return [(values, values.type.heads)]
        query, key, *gates = self.score.operands
        if self.is_linear and not self.is_gated:
            return [(query, heads), (key, key.type.heads), (values, values.type.heads)]
        # Gates are an operand of queries and of keys, and the same in both.
        more = [*gates[:1], *(o for change in self.changes for o in change.operands[1:2])]
        return [(operand, heads) for operand in (query, key, values, *more)]

    @property
    def has_sink(self) -> bool:
        """Whether there is a further key, with the value zero."""
        return self.normaliser.primitive.name in ("softmax_one", "softmax_sink")

    @property
    def biases(self) -> tuple[Step, ...]:
        """The changes that add a linear function of the key to the scores."""
        return tuple(step for step in self.changes if step.primitive.name == "key_bias")

    def has_bias(self, is_causal: bool) -> bool:
        """Whether each key has a number that is added to its scores."""
        return bool(self.changes) and (is_causal or not self.has_decay)

    @property
    def has_decay(self) -> bool:
        """Whether forget gates lower the scores."""
        return any(step.primitive.name == "decay" for step in self.changes)

    def is_plain_sink(self, plan: Plan) -> bool:
        """Whether a sink needs no further key: without masks and biases, at equal widths."""
        is_even = self.score is not None and self.score.width == self.sum.width
        return self.has_sink and is_even and not (plan.is_windowed or self.changes)

    @property
    def is_gated(self) -> bool:
        """Whether forget gates multiply the products of query and key."""
        return self.score is not None and self.score.primitive.name == "gated_product"

    @property
    def is_quadratic(self) -> bool:
        """Whether scores are squares of products, or quadratic functions of them."""
        return self.score is not None and self.score.primitive.name == "quadratic_product"

    @property
    def is_square(self) -> bool:
        """Whether scores are squares of products."""
        return self.score is not None and self.score.params.get("form") == "square"

    def features(self, width: int) -> int:
        """Return the number of features of linear attention over keys of this width."""
        return quadratic_width(width, self.is_square) if self.is_quadratic else width

    @property
    def is_ratio(self) -> bool:
        """Whether the weights are the scores divided by their sum, which the kernel computes."""
        return self.normaliser.primitive.name == "ratio"

    @property
    def is_linear(self) -> bool:
        """Whether the weights are the scores, up to a factor of each query."""
        return self.normaliser.primitive.name in ("softmax_free", "ratio")

    @property
    def is_divided(self) -> bool:
        """Whether the kernel divides sums by the number of visible keys."""
        return self.is_ratio or bool(self.normaliser.params.get("divide"))


def lower(plan: Plan) -> dict[int, Lowered]:
    """Return the kernel calls of a plan, by index of the aggregation that each call replaces."""
    graph = _Graph(plan)
    calls = (graph.call(step) for step in plan.steps)
    return {call.sum.index: call for call in calls if call is not None}


def flexible_calls(plan: Plan) -> dict[int, Lowered]:
    """Return the calls of FlexAttention that a GPU computes faster than the calls of ``lower``."""
    graph, fused = _Graph(plan), (softmax_attention, differential_attention, visible_mean)
    found = {}
    for step in plan.steps:
        known, call = graph.call(step), graph.call(step, FLEXIBLE)
        is_fused = known is not None and known.function in fused and not plan.is_windowed
        if call is None or call.score is None or call.mix is not None or is_fused:
            continue
        if not call.normaliser.params.get("length_bias"):
            found[step.index] = call
    return found


def twin_calls(plan: Plan) -> dict[int, Lowered]:
    """Return the calls of fla: causal linear attention, delta rules and stick-breaking."""
    graph, found = _Graph(plan), {}
    for step in () if plan.is_windowed or plan.unsafe else plan.steps:
        call = graph.call(step) or graph.call(step, STICK_BREAKING)
        if call is not None and call.is_linear and not call.is_quadratic:
            found[step.index] = replace(call, rule=graph.rule(call))
        elif call is not None and call.normaliser.primitive.name == "stick_breaking":
            found[step.index] = call
    return found


def live(plan: Plan, calls: Calls) -> set[Ref]:
    """Return the streams and steps that the output needs if kernel calls replace some steps."""
    live: set[Ref] = {plan.steps[-1].index}
    for step in reversed(plan.steps):
        if step.index in live:
            call = calls.get(step.index)
            read = [operand for operand, _ in call.operands] if call else step.operands
            live.update(operand.ref for operand in read)
    return live


def distributed(plan: Plan) -> Plan:
    """Return the plan with sums of combined weights replaced by combinations of sums.

        weighted_sum(difference(a, b), v)  ->  difference(weighted_sum(a, v), weighted_sum(b, v))

    A combination stays if one of its sums would have no kernel. New steps have new indices.
    """
    graph, steps, gone = _Graph(plan), [], set[str]()
    for step in plan.steps:
        parts = graph.distribute(step)
        gone |= {part.module for part in parts[:-1] if part.primitive.name in _COMBINED}
        gone |= {parts[-1].module} if len(parts) > 1 else set()
        steps += parts
    kept = [s for s in steps if not (s.module in gone and s.type.kind.is_paired)]
    return replace(plan, steps=tuple(kept)) if gone else plan


class _Graph:
    """The steps of a plan by index, and those that read each step."""

    def __init__(self, plan: Plan) -> None:
        self.genome = plan.genome
        self.steps: dict[Ref, Step] = {step.index: step for step in plan.steps}
        self.fresh = count(1 + max(step.index for step in plan.steps))
        self.readers = Counter(operand.ref for step in plan.steps for operand in step.operands)

    def operand(self, step: Step) -> Step:
        ref = step.operands[0].ref
        assert isinstance(ref, int), "scores and weights are never streams"
        return self.steps[ref]

    def call(self, total: Step, kernels: Kernels = KERNELS) -> Lowered | None:
        """Return the kernel call in place of an aggregation, None if there is none."""
        if total.primitive.name != "weighted_sum":
            return None
        normaliser, mix = self.operand(total), None
        if normaliser.primitive.name == "uniform":
            return Lowered(total, normaliser)
        if normaliser.primitive.name == "head_difference":
            mix, normaliser = normaliser, self.operand(normaliser)
        products = kernels.products.get(normaliser.primitive.name, ())
        if not products or (mix is not None and normaliser.primitive.name != "softmax"):
            return None
        score = self.operand(normaliser)
        changes: list[Step] = []
        while score.primitive.name in kernels.changes and products == _PLAIN and mix is None:
            changes.insert(0, score)
            score = self.operand(score)
        call = Lowered(total, normaliser, score, tuple(changes), mix)
        if score.primitive.name not in products:
            return None
        # A step that is read twice, or whose heads are repeated, runs by itself.
        if any(self.readers[s.index] > 1 or s.heads != total.heads for s in call.steps[:-1]):
            return None
        if kernels is KERNELS and call.has_sink and call.has_decay:
            return None  # gates change the weight of the sink
        is_ratio = normaliser.primitive.name == "ratio"
        return None if is_ratio and not is_non_negative(self.genome, score.index) else call

    def rule(self, call: Lowered) -> Step | None:
        """Return the delta rule over a linear sum's keys and gates, whose result is summed."""
        if call.score is None or call.is_divided:
            return None
        _, key, *gates = call.score.operands
        rule, unit = self.steps.get(call.sum.operands[1].ref), self.steps.get(key.ref)
        if rule is None or unit is None or rule.primitive.name != "delta":
            return None
        is_shared = self.readers[rule.index] > 1 or rule.heads != call.sum.heads
        is_same = unit.primitive.name == "l2_norm" and unit.operands[0].ref == rule.operands[0].ref
        is_same = is_same and {o.ref for o in gates} == {o.ref for o in rule.operands[2:]}
        return rule if is_same and not is_shared else None

    def distribute(self, total: Step) -> list[Step]:
        """Return an aggregation as sums and their combination; unchanged without kernels."""
        parts: list[Step] = []
        if total.primitive.name == "weighted_sum":
            self._distribute(total, parts)
        sums = [part for part in parts if part.primitive.name == "weighted_sum"]
        if len(sums) < 2 or any(self.call(part) is None for part in sums):
            return [total]
        last = replace(parts[-1], index=total.index, variable=total.variable)
        return [*parts[:-1], last]

    def _distribute(self, total: Step, parts: list[Step]) -> Step:
        """Append the steps that compute an aggregation, and return the last."""
        weights, values = self.operand(total), total.operands[1]
        is_alone = self.readers[weights.index] == 1 and weights.heads == total.heads
        if weights.primitive.name in _COMBINED and is_alone:
            operands = []
            for o in weights.operands:
                part = self._distribute(replace(total, operands=(o, values)), parts)
                port = o.port._replace(kind=Kind.TOKENS, width=values.port.width)
                operands.append(Operand(part.index, part.variable, part.type, port, False))
            total = replace(weights, type=total.type, width=total.width, operands=tuple(operands))
        index = next(self.fresh)
        parts.append(replace(total, index=index, variable=f"sums_{index}"))
        return parts[-1]
