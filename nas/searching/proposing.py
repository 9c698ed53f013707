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

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nas.searching.told import REPEAT, Attempt
from nas.store import Proposal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from nas.searching.algorithm import Algorithm, Materials
    from nas.searching.told import Told

# Attempts in a row without a new mechanism after which a space counts as exhausted.
MAX_ATTEMPTS: Final = 1000
REPEAT_EVERY: Final = 10  # proposals, of which one trains what is known


class Proposer:
    """Draws proposals in order of their numbers.

    Most are new mechanisms, drawn by the algorithm. Some train a known one with another seed, so
    that the noise is known and the front does not rest on luck: one in ``REPEAT_EVERY``, each time
    the likely member of the front of which one more training tells most; and those that the
    algorithm asks for.

    Args:
        lag: see the module; None for the generational form.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        materials: Materials,
        *,
        lag: int | None = None,
    ) -> None:
        self._algorithm, self._materials = algorithm, materials
        self._judge, self._archive = materials.judge, materials.archive
        self._lag = lag
        self._asked: list[Proposal] = []
        self._num_told = 0
        self._num_named = 0

    def follow(self, recorded: Iterable[Proposal]) -> None:
        """Take over attempts that were made before."""
        for proposal in recorded:
            self._num_named += proposal.name is not None and not proposal.is_repeat
            if proposal.is_new and proposal.key is not None:
                self._judge.see(proposal.key)
            if proposal.is_trained:
                self._asked.append(proposal)

    def may_propose(self, number: int, known: int) -> bool:
        """Whether the results of the first ``known`` proposals suffice for proposal ``number``."""
        return known >= self._horizon(number)

    def propose(self, number: int, told: Sequence[Told]) -> list[Proposal]:
        """All attempts for a number; the last one is to be trained, or the space is exhausted.

        Args:
            told: results of the proposals from 0 on, as many as are known without a gap.
        """
        horizon = self._horizon(number)
        self._tell(told[:horizon])
        self._archive.pending = self._asked[horizon:]
        rng = self._materials.generator(number)
        attempts: list[Proposal] = []
        while len(attempts) < MAX_ATTEMPTS and not (attempts and attempts[-1].is_trained):
            attempt = self._repeat(number) or self._draw(number, rng, len(attempts))
            judged = self._judge.judge(attempt, number, len(attempts))
            attempts.append(self._repeated(judged) if attempt.operator == REPEAT else judged)
        if attempts[-1].is_trained:
            self._asked.append(attempts[-1])
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
            part = told[self._num_told : end]
            self._archive.tell(part)
            self._algorithm.tell(part)
            self._num_told = end

    def _repeat(self, number: int) -> Attempt | None:
        """A known mechanism to train again, where it is time for one."""
        if number % REPEAT_EVERY != REPEAT_EVERY - 1:
            return None
        chosen = self._archive.most_doubtful()
        return None if chosen is None else Attempt(chosen.genome, REPEAT)

    def _repeated(self, judged: Proposal) -> Proposal:
        """The proposal to train again what it asks for; as judged, where that is not known."""
        first = next((p for p in self._asked if p.key == judged.key), None)
        if first is None:
            return judged
        return replace(judged, verdict="repeated", name=first.name, costs=first.costs)

    def _draw(self, number: int, rng: np.random.Generator, num_failed: int) -> Attempt:
        materials = self._materials
        if number >= materials.population:
            return self._algorithm.propose(rng, num_failed)
        if self._num_named < len(materials.mechanisms):
            name, genome = materials.mechanisms[self._num_named]
            self._num_named += 1
            return Attempt(genome, "mechanism", name)
        return materials.sample(rng)
