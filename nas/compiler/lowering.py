"""Lowering: replace score, normaliser and aggregation of a plan by one kernel call.

A kernel is a function that does not store the attention weights of all pairs of tokens. These
chains of primitives have a kernel; every other mechanism runs step by step.

======================  =====================  ====================================================
score                   normaliser             kernel
======================  =====================  ====================================================
scaled_dot_product      softmax                torch's fused attention
the same and ``decay``  softmax                the same; in causal attention gates bias the keys
scaled_dot_product      softmax_free, ratio    query·(key^T·values), Katharopoulos et al. 2020
gated_product           softmax_free, ratio    the same in chunks, Yang et al. 2024
any                     uniform                a mean of the values
======================  =====================  ====================================================

``ratio`` is lowered only if its scores are provably not negative. Lowering other scores, such as
bilinear or capped ones, saves no time at the sizes of a search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.kernels.attention import linear_attention, softmax_attention, visible_mean
from nas.compiler.kernels.gated import forgetting_attention, gated_linear_attention
from nas.genome import Ref
from nas.genome.types import is_non_negative

if TYPE_CHECKING:
    from nas.compiler.plan import Operand, Plan, Step

    Readers = Mapping[Ref, list[Step]]
    Calls = Mapping[int, "Lowered"]

_PRODUCTS: Final = {  # the scores that each normaliser's kernels compute
    "softmax": ("scaled_dot_product",),
    "softmax_free": ("scaled_dot_product", "gated_product"),
    "ratio": ("scaled_dot_product", "gated_product"),
}


@dataclass(frozen=True)
class Lowered:
    """A kernel call that replaces a score, a normaliser and an aggregation of a plan."""

    sum: Step  # the aggregation, in whose place the kernel is called
    normaliser: Step
    score: Step | None = None  # None for a mean, which needs no scores
    decay: Step | None = None  # adds the logarithms of forget gates to the scores

    @property
    def steps(self) -> tuple[Step, ...]:
        """The replaced steps, in order."""
        steps = (self.score, self.decay, self.normaliser, self.sum)
        return tuple(step for step in steps if step is not None)

    @property
    def function(self) -> Any:
        """The kernel's function."""
        if self.score is None:
            return visible_mean
        if self.is_linear:
            return gated_linear_attention if self.is_gated else linear_attention
        return softmax_attention if self.decay is None else forgetting_attention

    @property
    def operands(self) -> list[tuple[Operand, str]]:
        """The query, key, values and gates of the kernel, or its values: each with its head label.

        Linear attention and means compute sums over keys once for all heads that share the keys.
        """
        heads, values = self.sum.heads, self.sum.operands[1]
        if self.score is None:
            return [(values, values.type.heads)]
        query, key, *gates = self.score.operands
        gates += [] if self.decay is None else self.decay.operands[1:]
        # Gates are an operand of queries and of keys, and the same in both.
        if self.is_linear and not self.is_gated:
            return [(query, heads), (key, key.type.heads), (values, values.type.heads)]
        return [(operand, heads) for operand in (query, key, values, *gates[:1])]

    @property
    def is_gated(self) -> bool:
        """Whether forget gates multiply the products of query and key."""
        return self.score is not None and self.score.primitive.name == "gated_product"

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
    readers: defaultdict[Ref, list[Step]] = defaultdict(list)
    for step in plan.steps:
        for operand in step.operands:
            readers[operand.ref].append(step)
    calls = (_call(plan, step, readers) for step in plan.steps)
    return {call.sum.index: call for call in calls if call is not None}


def live(plan: Plan, calls: Calls) -> set[Ref]:
    """Return the streams and steps that the output needs if kernel calls replace some steps."""
    live: set[Ref] = {plan.steps[-1].index}
    for step in reversed(plan.steps):
        if step.index in live:
            call = calls.get(step.index)
            read = [operand for operand, _ in call.operands] if call else step.operands
            live.update(operand.ref for operand in read)
    return live


def _call(plan: Plan, total: Step, readers: Readers) -> Lowered | None:
    if total.primitive.name != "weighted_sum":
        return None
    normaliser = _operand(plan, total)
    if normaliser.primitive.name == "uniform":
        return Lowered(total, normaliser)
    products = _PRODUCTS.get(normaliser.primitive.name, ())
    score = _operand(plan, normaliser) if products else normaliser
    decay = None
    if score.primitive.name == "decay" and normaliser.primitive.name == "softmax":
        decay, score = score, _operand(plan, score)
    chain = [step for step in (score, decay, normaliser) if step is not None]
    if score.primitive.name not in products:
        return None
    # A step that is read twice, or whose heads are repeated, runs by itself.
    if any(len(readers[s.index]) > 1 or s.heads != total.heads for s in chain):
        return None
    if normaliser.primitive.name == "ratio" and not is_non_negative(plan.genome, score.index):
        return None
    return Lowered(total, normaliser, score, decay)


def _operand(plan: Plan, step: Step) -> Step:
    ref = step.operands[0].ref
    assert isinstance(ref, int), "scores and weights are never streams"
    return plan.steps[ref]
