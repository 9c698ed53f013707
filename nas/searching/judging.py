"""Judging attempts: which are worth training. What is trained is the normal form, once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from nas.common.errors import NasError
from nas.compiler import formula_of
from nas.costs import costs_of, default_costs
from nas.genome.canonical import digest
from nas.space.validation import validate
from nas.store import Proposal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nas.costs import CostContext
    from nas.genome import Genome
    from nas.searching.told import Attempt
    from nas.space.validation import Policy
    from nas.store.records import Verdict

MOST_REMEMBERED: Final = 50_000  # genomes of which it is remembered what they come to
ILLEGAL: Final = "internal error, the policy forbids it: "


@dataclass(frozen=True, slots=True)
class Look:
    """What a genome comes to at the task's sizes.

    Attributes:
        genome: in normal form; as written where it does not exist at these sizes.
        key: digest at the sizes; empty where it is rejected, like formula and costs.
        costs: by name.
        note: why it is rejected, or nothing.
        is_new: whether it is legal and the run has not trained it.
    """

    genome: Genome
    digest: str
    key: str
    formula: str
    costs: Mapping[str, float]
    note: str
    is_new: bool = False


class Judge:
    """Tells which attempts are worth training, and remembers the keys of all that were new.

    An attempt is brought to its normal form at the task's sizes; that form is judged by the policy
    (the independent validator: what has not passed is never trained), named, counted and trained.
    It may hold primitives that the space lacks, which two of the space's own come to. What the run
    has seen is *replayed*: its result is known. What sizes or policy do not allow is *rejected*.

    Args:
        setting: the task's, for normal forms and costs.
        costs: names of those that are objectives, given beside those that always are.
    """

    def __init__(self, policy: Policy, setting: CostContext, costs: Iterable[str]) -> None:
        self._policy, self._setting = policy, setting
        self._names = tuple(dict.fromkeys([*default_costs(), *costs]))
        self._seen: set[str] = set()
        self._looked = lru_cache(maxsize=MOST_REMEMBERED)(self._look)

    def see(self, key: str) -> None:
        """Know a mechanism, so that it is not new again."""
        self._seen.add(key)

    def look(self, genome: Genome) -> Look:
        """What a genome comes to; it stays as new as it was."""
        found = self._looked(genome)
        return replace(found, is_new=not found.note and found.key not in self._seen)

    def judge(self, attempt: Attempt, number: int, index: int) -> Proposal:
        """Judge the attempt of this index for a proposal; a new one is known from now on."""
        seen = self.look(attempt.genome)
        verdict: Verdict = "rejected" if seen.note else "new" if seen.is_new else "replayed"
        if seen.is_new:
            self.see(seen.key)
        return Proposal(
            number=number,
            attempt=index,
            digest=seen.digest,
            key=seen.key or None,
            genome=seen.genome,
            formula=seen.formula,
            operator=attempt.operator,
            name=attempt.name,
            parents=attempt.parents,
            verdict=verdict,
            note=seen.note,
            costs=seen.costs if seen.is_new else {},
        )

    def _look(self, genome: Genome) -> Look:
        try:
            resolved = self._setting.resolve(genome)
            genome, name = resolved.genome, resolved.digest
            if violations := validate(genome, self._policy):
                return Look(genome, name, "", "", {}, ILLEGAL + violations[0].message)
            costs = costs_of(resolved, self._setting, self._names)
            return Look(genome, name, resolved.key, formula_of(resolved.plan), costs, "")
        except NasError as error:
            return Look(genome, digest(genome), "", "", {}, str(error))
