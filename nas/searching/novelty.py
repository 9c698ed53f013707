"""Novelty: which attempts of an algorithm are worth training.

An attempt is brought to its normal form at the task's sizes; that form is judged by the policy
(the independent validator: what has not passed is never trained), named, counted and trained. One
that the run has seen is *replayed*: its result is known. One that the sizes or the policy do not
allow is *rejected*. Only *new* ones are trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nas.canonical import digest
from nas.compiler import formula
from nas.errors import NasError, ViolationError
from nas.searching.costing import canonicalise, resolved_digest
from nas.store import Proposal
from nas.validation import validate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nas.genome import Genome, ModelSizes
    from nas.searching.algorithm import Attempt
    from nas.validation import Policy

ILLEGAL: Final = "internal error, the policy forbids it: "


class Judge:
    """Judges attempts and remembers the keys of all that were new.

    Args:
        sizes: at which mechanisms are told apart.
        costs: of a genome in normal form, by name; raises NasError if it does not exist there.
    """

    def __init__(
        self, policy: Policy, sizes: ModelSizes, costs: Callable[[Genome], Mapping[str, float]]
    ) -> None:
        self._policy, self._sizes, self._costs = policy, sizes, costs
        self._seen: set[str] = set()
        self._formulas: dict[str, str] = {}

    def see(self, key: str) -> None:
        """Know a mechanism, so that it is not new again."""
        self._seen.add(key)

    def judge(self, attempt: Attempt, number: int, index: int) -> Proposal:
        """Judge the attempt of this index for a proposal; a new one is known from now on."""
        genome = attempt.genome
        try:
            genome = canonicalise(genome, self._sizes)
            judged = self._judged(genome)
        except NasError as error:
            judged = _rejected(str(error))
        name = digest(genome)
        return Proposal(
            number=number,
            attempt=index,
            digest=name,
            genome=genome,
            formula=self._formula(name, genome),
            operator=attempt.operator,
            name=attempt.name,
            parents=attempt.parents,
            **judged,
        )

    def _judged(self, genome: Genome) -> dict[str, Any]:
        violations = validate(genome, self._policy)
        if violations:
            return _rejected(ILLEGAL + violations[0].message)
        key = resolved_digest(genome, self._sizes)
        if key in self._seen:
            return {"key": key, "verdict": "replayed"}
        costs = self._costs(genome)
        self.see(key)
        return {"key": key, "verdict": "new", "costs": costs}

    def _formula(self, name: str, genome: Genome) -> str:
        if name not in self._formulas:
            try:
                self._formulas[name] = formula(genome)
            except ViolationError:
                self._formulas[name] = ""
        return self._formulas[name]


def _rejected(note: str) -> dict[str, Any]:
    return {"key": None, "verdict": "rejected", "note": note}
