"""Which parts of a plan become one call: of attention, of a mean, of a linear sum.

A score is *products of features* if scores_ij = f(q_i)·g(k_j) + b(k_j) + c(q_i): scaled dot
products, bilinear scores, cosines, distances, and what factors, sums and biases of keys make of
them. Softmax does not see c, so that the weights are never needed, and fused kernels, whose memory
is linear in the length, apply. What a curve or a distance in the text adds after the products
(softcap, ALiBi, sigmoid) is one call too, for which a device may have a kernel. Weights that are
the scores, or that no score changes, need not exist at all. ``RULES`` names what is recognised;
each can be switched off alone, and each gains 5 % of a training step or more at 65 tokens, or 20 %
at 1,024. The interpreter knows none of this: every rule is compared with it.

What a call reads instead of the scores, nas.compiler.features writes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nas.common.config import near
from nas.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from nas.compiler.plan import Operand, Plan, Step
    from nas.genome import Ref

    Readers = Mapping[Ref, list[Step]]
    # The calls that replace aggregations, by the index of the first.
    Fused = Mapping[int, "Lowered"]

# By name of a rule, the score (or change of scores) that it reads as products of features.
SCORES: Final = {
    "dot_product": "scaled_dot_product",
    "bilinear": "bilinear",
    "cosine": "cosine",
    "distance": "distance",
    "temperature": "temperature",
    "sum": "add",
    "key_bias": "key_bias",
    "alibi": "alibi",
    "softcap": "softcap",
}
RULES: Final = (
    *SCORES,
    "softmax_one",  # a silent key in front of the others
    "sigmoid",  # weights that do not see each other
    "softmax_free",  # weights that are the scores: sums over the keys come first
    "uniform",  # a mean needs no scores
    "same_scores",  # what several softmaxes read is in the call of each
    "same_weights",  # several aggregations by the same weights are one of wider values
    "shared_weights",  # heads of values that share a head of weights are one of wider values
)
# By normaliser, the scores below it that are not products of features: only softmax forgets what a
# distance adds to all scores of a query.
_UNKNOWN: Final = {
    "softmax": frozenset(),
    "softmax_one": frozenset({"distance", "alibi", "softcap"}),
    "sigmoid": frozenset({"distance"}),
    "softmax_free": frozenset({"distance", "alibi", "softcap"}),
}
# The same below a change of scores: a curve comes after all products, a penalty after the curve.
_UNKNOWN_BELOW: Final = {
    "temperature": frozenset({"softcap"}),
    "add": frozenset({"softcap"}),
    "key_bias": frozenset({"softcap"}),
    "alibi": frozenset(),
    "softcap": frozenset({"distance", "alibi", "softcap"}),
}


@dataclass(frozen=True)
class Lowered:
    """Aggregations that are one call, and what the call stands for.

    Attributes:
        sums: the aggregations, all by the weights of ``normaliser``.
        scores: what makes its scores, the last of them what it reads; empty where it reads none.
    """

    sums: tuple[Step, ...]
    normaliser: Step
    scores: tuple[Step, ...]

    @property
    def is_grouped(self) -> bool:
        """Whether heads that share keys and values share their sums: others are given copies."""
        return self.is_linear or not self.scores

    @property
    def is_folded(self) -> bool:
        """Whether several heads of values share a head of weights."""
        return bool(self.scores) and self.sums[0].operands[0].is_repeated

    @property
    def has_silent_key(self) -> bool:
        """Whether weights may sum to less than one."""
        return self.normaliser.primitive.name == "softmax_one"

    @property
    def is_linear(self) -> bool:
        """Whether the scores themselves are the weights, so that sums may come first."""
        return self.normaliser.primitive.name == "softmax_free"

    @property
    def read(self) -> Iterator[Operand]:
        """The tokens that the call reads."""
        for step in (*self.scores, *self.sums):
            yield from (operand for operand in step.operands if not operand.is_paired)


def chosen_rules(fuse: bool | Collection[str]) -> frozenset[str]:
    """The rules that a switch means: all, none, or those named.

    Raises:
        ConfigError: no rule has that name.
    """
    if isinstance(fuse, bool):
        return frozenset(RULES if fuse else ())
    names = (fuse,) if isinstance(fuse, str) else fuse
    for name in names:
        if name not in RULES:
            raise ConfigError(
                f"fuse: found {name!r}; expected True, False or a collection of "
                f"{', '.join(RULES)}{near(name, RULES)}."
            )
    return frozenset(names)


def lower(plan: Plan, rules: Collection[str]) -> dict[int, Lowered]:
    """The calls that a plan's aggregations become, by the index of their first aggregation."""
    readers: defaultdict[Ref, list[Step]] = defaultdict(list)
    for step in plan.steps:
        for operand in step.operands:
            readers[operand.ref].append(step)
    found: dict[int, Lowered] = {}
    for step in plan.steps:
        for call in _calls(plan, step, readers, rules):
            found[call.sums[0].index] = call
    # Scores that somebody reads as they are exist anyway: nothing is won by a call without them.
    while late := [i for i, call in found.items() if _is_read(call, live(plan, found))]:
        for index in late:
            del found[index]
    return found


def live(plan: Plan, fused: Fused) -> set[Ref]:
    """The streams and steps that are read when calls replace aggregations."""
    calls = {step.index: call for call in fused.values() for step in call.sums}
    found: set[Ref] = {plan.steps[-1].index}
    for step in reversed(plan.steps):
        if step.index in found:
            read = calls[step.index].read if step.index in calls else step.operands
            found.update(operand.ref for operand in read)
    return found


def uncalled(plan: Plan, fused: Fused) -> set[int]:
    """The steps that are not called: those that nobody reads, and all sums of a call but one."""
    needed = live(plan, fused)
    later = {step.index for call in fused.values() for step in call.sums[1:]}
    return later | {step.index for step in plan.steps if step.index not in needed}


def _is_read(call: Lowered, needed: set[Ref]) -> bool:
    return any(step.index in needed for step in (*call.scores, call.normaliser))


def _calls(
    plan: Plan, normaliser: Step, readers: Readers, rules: Collection[str]
) -> Iterator[Lowered]:
    """What the aggregations that read a normaliser's weights become."""
    name = normaliser.primitive.name
    own = readers[normaliser.index]
    if any(step.primitive.name != "weighted_sum" for step in own):
        return
    if name == "uniform" and "uniform" in rules:
        for step in own:
            yield Lowered((step,), normaliser, ())
    if name not in _UNKNOWN or (name != "softmax" and name not in rules):
        return
    sums = _sums(normaliser, tuple(own), rules)
    known = frozenset(SCORES[rule] for rule in rules if rule in SCORES) - _UNKNOWN[name]
    scores = _scores(plan, normaliser.operands[0].ref, normaliser, readers, rules, known)
    if sums and scores:
        once = tuple({step.index: step for step in scores}.values())
        yield Lowered(sums, normaliser, once)


def _sums(normaliser: Step, sums: tuple[Step, ...], rules: Collection[str]) -> tuple[Step, ...]:
    """The aggregations that are one call; none if they cannot be."""
    if normaliser.is_filtered:
        return ()
    if any(step.operands[0].is_repeated for step in sums):
        return sums if len(sums) == 1 and "shared_weights" in rules else ()
    # Values that are made of an earlier sum's result come too late to be summed with it.
    are_ready = all(step.stage == sums[0].stage for step in sums)
    return sums if len(sums) == 1 or ("same_weights" in rules and are_ready) else ()


def _scores(
    plan: Plan,
    ref: Ref,
    reader: Step,
    readers: Readers,
    rules: Collection[str],
    known: frozenset[str],
) -> tuple[Step, ...] | None:
    """What a score is made of, if all of it is products of features, and curves over them."""
    assert isinstance(ref, int), "scores are never streams"
    step = plan.steps[ref]
    name = step.primitive.name
    is_free = len(readers[ref]) == 1 or "same_scores" in rules
    # A sum of scores of one and of many heads is quicker as it is: 1.5 times at 65 tokens.
    if name not in known or not is_free or step.heads != reader.heads:
        return None
    parts: tuple[Step, ...] = ()
    for operand in (o for o in step.operands if o.is_paired):
        least = known - _UNKNOWN_BELOW[name]
        below = _scores(plan, operand.ref, reader, readers, rules, least)
        if below is None:
            return None
        parts += below
    return (*parts, step)
