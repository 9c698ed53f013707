"""Proposing, apart from training: what comes next, as a function of what was proposed and told.

Proposal t is computed from the results of the proposals up to t - lag, told in order, with a
random generator of its own; without a lag, from all results of earlier generations. Attempts are
drawn and judged until one is new. Recorded proposals are followed as recorded, even where another
processor would draw otherwise, so that resuming is reading. Whoever trains by other means asks
and tells here too:

    proposer = make_proposer(...)
    while proposer.may_propose(number, len(told)):
        attempts = proposer.propose(number, told)  # the last one is what to train
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nas.canonical import canonicalise, digest, resolved_digest
from nas.compiler import formula
from nas.costs import DEFAULT_COSTS, costs_of
from nas.errors import NasError
from nas.searching.algorithm import Attempt
from nas.store import Proposal
from nas.validation import validate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from nas.costs import Setting
    from nas.genome import Genome
    from nas.searching.algorithm import Algorithm, Materials, Told
    from nas.validation import Policy

# Attempts in a row without a new mechanism after which a space counts as exhausted.
MAX_ATTEMPTS: Final = 1000
ILLEGAL: Final = "internal error, the policy forbids it: "


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

    def __init__(self, policy: Policy, setting: Setting, costs: Iterable[str]) -> None:
        self._policy, self._setting = policy, setting
        self._names = tuple(dict.fromkeys([*DEFAULT_COSTS, *costs]))
        self._seen: set[str] = set()

    def see(self, key: str) -> None:
        """Know a mechanism, so that it is not new again."""
        self._seen.add(key)

    def judge(self, attempt: Attempt, number: int, index: int) -> Proposal:
        """Judge the attempt of this index for a proposal; a new one is known from now on."""
        genome = attempt.genome
        try:
            genome = canonicalise(genome, self._setting.sizes, is_causal=self._setting.is_causal)
            judged = self._judged(genome)
        except NasError as error:
            judged = _rejected(str(error))
        return Proposal(
            number=number,
            attempt=index,
            digest=digest(genome),
            genome=genome,
            operator=attempt.operator,
            name=attempt.name,
            parents=attempt.parents,
            **judged,
        )

    def _judged(self, genome: Genome) -> dict[str, Any]:
        violations = validate(genome, self._policy)
        if violations:
            return _rejected(ILLEGAL + violations[0].message)
        key = resolved_digest(genome, self._setting.sizes, is_causal=self._setting.is_causal)
        known = {"key": key, "formula": formula(genome)}
        if key in self._seen:
            return known | {"verdict": "replayed"}
        costs = costs_of(genome, self._setting, self._names)
        self.see(key)
        return known | {"verdict": "new", "costs": costs}


def _rejected(note: str) -> dict[str, Any]:
    return {"key": None, "formula": "", "verdict": "rejected", "note": note}


class Proposer:
    """Draws proposals in order of their numbers.

    Args:
        lag: see the module; None for the generational form.
    """

    def __init__(
        self, algorithm: Algorithm, materials: Materials, judge: Judge, *, lag: int | None = None
    ) -> None:
        self._algorithm, self._materials, self._judge = algorithm, materials, judge
        self._lag = lag
        self._num_told = 0
        self._num_named = 0

    def follow(self, recorded: Iterable[Proposal]) -> None:
        """Take over attempts that were made before."""
        for proposal in recorded:
            self._num_named += proposal.name is not None
            if proposal.is_new and proposal.key is not None:
                self._judge.see(proposal.key)

    def may_propose(self, number: int, known: int) -> bool:
        """Whether the results of the first ``known`` proposals suffice for proposal ``number``."""
        return known >= self._horizon(number)

    def propose(self, number: int, told: Sequence[Told]) -> list[Proposal]:
        """All attempts for a number; the last one is new, or the space is exhausted.

        Args:
            told: results of the proposals from 0 on, as many as are known without a gap.
        """
        self._tell(told[: self._horizon(number)])
        rng = self._materials.generator(number)
        attempts: list[Proposal] = []
        while len(attempts) < MAX_ATTEMPTS and not (attempts and attempts[-1].is_new):
            attempt = self._draw(number, rng, len(attempts))
            attempts.append(self._judge.judge(attempt, number, len(attempts)))
        return attempts

    def _horizon(self, number: int) -> int:
        """How many results proposal ``number`` is computed from."""
        if self._lag is None:
            return number - number % self._materials.population
        return max(0, number - self._lag + 1)

    def _tell(self, told: Sequence[Told]) -> None:
        """Tell what is new, cut alike however it came: by generations, or one by one."""
        size = self._materials.population if self._lag is None else 1
        while self._num_told < len(told):
            end = min(self._num_told + size, len(told))
            self._algorithm.tell(told[self._num_told : end])
            self._num_told = end

    def _draw(self, number: int, rng: np.random.Generator, num_failed: int) -> Attempt:
        materials = self._materials
        if number >= materials.population:
            return self._algorithm.propose(rng, num_failed)
        if self._num_named < len(materials.mechanisms):
            name, genome = materials.mechanisms[self._num_named]
            self._num_named += 1
            return Attempt(genome, "mechanism", name)
        return materials.sample(rng)
