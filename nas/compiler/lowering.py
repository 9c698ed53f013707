"""Which parts of a plan become one call of dot-product attention.

A score is *products of features* if scores_ij = f(q_i)·g(k_j) + b(k_j) + c(q_i): scaled dot
products, bilinear scores, cosines, distances, and what factors and sums make of them. Softmax does
not see c, so that the weights are never needed, and fused kernels, whose memory is linear in the
length, apply. ``RULES`` names what is recognised; each can be switched off alone. The interpreter
knows none of this: it is what costs are counted on, and what every rule is compared with.

What the call reads instead of the scores, nas.compiler.features writes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nas.config import near
from nas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nas.compiler.plan import Plan, Step
    from nas.genome import Ref

    Readers = Mapping[Ref, list[Step]]

# By name of a rule, the score (or change of scores) that it reads as products of features.
SCORES: Final = {
    "dot_product": "scaled_dot_product",
    "bilinear": "bilinear",
    "cosine": "cosine",
    "distance": "distance",
    "temperature": "temperature",
    "sum": "add",
}
RULES: Final = (
    *SCORES,
    "softmax_one",  # a silent key in front of the others
    "same_weights",  # several aggregations by the same weights are one of wider values
    "shared_weights",  # heads of values that share a head of weights are one of wider values
    "grouped_heads",  # heads that share keys and values are not given copies of them
)


@dataclass(frozen=True)
class Lowered:
    """Aggregations that are one call, and what the call stands for.

    Attributes:
        sums: the aggregations, all by the weights of ``normaliser``.
        scores: what makes its scores, the last of them what it reads.
        is_grouped: keys and values may have fewer heads than queries.
    """

    sums: tuple[Step, ...]
    normaliser: Step
    scores: tuple[Step, ...]
    is_grouped: bool

    @property
    def hidden(self) -> tuple[Step, ...]:
        """The steps that are not called."""
        return (*self.scores, self.normaliser, *self.sums[1:])

    @property
    def is_folded(self) -> bool:
        """Whether several heads of values share a head of weights."""
        return self.sums[0].operands[0].is_repeated

    @property
    def has_silent_key(self) -> bool:
        """Whether weights may sum to less than one."""
        return self.normaliser.primitive.name == "softmax_one"


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
    found = {}
    for step in plan.steps:
        sums = _sums(step, readers, rules)
        scores = _scores(plan, step.operands[0].ref, step, readers, rules) if sums else None
        if sums and scores:
            found[sums[0].index] = Lowered(sums, step, scores, "grouped_heads" in rules)
    return found


def _sums(normaliser: Step, readers: Readers, rules: Collection[str]) -> tuple[Step, ...]:
    """The aggregations that read a softmax's weights; none if somebody else reads them too."""
    known = ("softmax", "softmax_one") if "softmax_one" in rules else ("softmax",)
    if normaliser.primitive.name not in known or normaliser.is_filtered:
        return ()
    sums = tuple(readers[normaliser.index])
    if any(step.primitive.name != "weighted_sum" for step in sums):
        return ()
    if any(step.operands[0].is_repeated for step in sums):
        return sums if len(sums) == 1 and "shared_weights" in rules else ()
    # Values that are made of an earlier sum's result come too late to be summed with it.
    are_ready = all(step.stage == sums[0].stage for step in sums)
    return sums if len(sums) == 1 or ("same_weights" in rules and are_ready) else ()


def _scores(
    plan: Plan, ref: Ref, reader: Step, readers: Readers, rules: Collection[str]
) -> tuple[Step, ...] | None:
    """What a score is made of, if all of it is products of features that nobody else reads."""
    assert isinstance(ref, int), "scores are never streams"
    step = plan.steps[ref]
    is_known = any(SCORES.get(rule) == step.primitive.name for rule in rules)
    # A sum of scores of one and of many heads is quicker as it is: 1.5 times at 65 tokens.
    if not is_known or len(readers[ref]) > 1 or step.heads != reader.heads:
        return None
    # Only softmax forgets what a distance adds to all scores of a query.
    if step.primitive.name == "distance" and reader.primitive.name == "softmax_one":
        return None
    parts: tuple[Step, ...] = ()
    for operand in step.operands if step.primitive.name in ("temperature", "add") else ():
        below = _scores(plan, operand.ref, reader, readers, rules)
        if below is None:
            return None
        parts += below
    return (*parts, step)
