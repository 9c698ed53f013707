"""Draw proposals as a function of earlier proposals and their results, without training.

Proposal t is computed from the results of the proposals up to t - lag, in order, with its own
random generator; without a lag, from all results of earlier generations. Attempts are drawn until
one is new. A resumed run takes over recorded proposals unchanged, even if this processor would draw
others. Programs that train by other means can use a proposer directly:

    proposer = make_proposer(...)
    while proposer.may_propose(number, len(results)):
        attempts = proposer.propose(number, results)  # the last one is to be trained
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nas.searching.algorithm import Algorithm, SearchContext
from nas.searching.results import REPEAT, Attempt, TrialResult
from nas.store import Proposal

# Attempts in a row without a new mechanism after which a space counts as exhausted.
MAX_ATTEMPTS: Final = 1000
REPEAT_EVERY: Final = 10  # every so many proposals, one is a re-evaluation


class Proposer:
    """Draws proposals in order of their numbers.

    Most are new mechanisms from the algorithm. One in ``REPEAT_EVERY`` re-trains a known mechanism
    to estimate seed noise, see ``Archive.select_reevaluation``; the algorithm may propose further
    re-evaluations.

    Args:
        lag: see the module; None for whole generations.
    """

    def __init__(
        self, algorithm: Algorithm, context: SearchContext, lag: int | None = None
    ) -> None:
        self._algorithm, self._context = algorithm, context
        self._filter, self._archive = context.filter, context.archive
        self._lag = lag
        self._trained: list[Proposal] = []
        self._num_passed = 0
        self._num_named = 0

    def follow(self, recorded: Iterable[Proposal]) -> None:
        """Take over recorded attempts of a run that is resumed."""
        for proposal in recorded:
            self._num_named += proposal.name is not None and not proposal.is_repeat
            if proposal.is_new and proposal.key is not None:
                self._filter.add_known(proposal.key)
            if proposal.is_trained:
                self._trained.append(proposal)

    def may_propose(self, number: int, num_results: int) -> bool:
        """Whether the first ``num_results`` results suffice to draw proposal ``number``."""
        return num_results >= self._horizon(number)

    def propose(self, number: int, results: Sequence[TrialResult]) -> list[Proposal]:
        """All attempts for a number; the last one is to be trained, or the space is exhausted.

        Args:
            results: results of proposals 0, 1, ..., up to the first without a result.
        """
        horizon = self._horizon(number)
        self._tell(results[:horizon])
        self._archive.pending = self._trained[horizon:]
        rng = self._context.generator(number)
        attempts: list[Proposal] = []
        while len(attempts) < MAX_ATTEMPTS and not (attempts and attempts[-1].is_trained):
            attempt = self._reevaluation(number) or self._draw(number, rng, len(attempts))
            proposal = self._filter.propose(attempt, number, len(attempts))
            attempts.append(self._repeated(proposal) if attempt.operator == REPEAT else proposal)
        if attempts[-1].is_trained:
            self._trained.append(attempts[-1])
        return attempts

    def _horizon(self, number: int) -> int:
        """The number of results that proposal ``number`` is computed from."""
        if self._lag is None:
            return number - number % self._context.population
        return max(0, number - self._lag + 1)

    def _tell(self, results: Sequence[TrialResult]) -> None:
        """Pass new results to archive and algorithm, a generation or one result at a time."""
        size = self._context.population if self._lag is None else 1
        while self._num_passed < len(results):
            end = min(self._num_passed + size, len(results))
            part = results[self._num_passed : end]
            self._archive.tell(part)
            self._algorithm.tell(part)
            self._num_passed = end

    def _reevaluation(self, number: int) -> Attempt | None:
        """A re-evaluation, if it is this proposal's turn and a mechanism may be re-evaluated."""
        if number % REPEAT_EVERY != REPEAT_EVERY - 1:
            return None
        chosen = self._archive.select_reevaluation()
        return None if chosen is None else Attempt(chosen.genome, REPEAT)

    def _repeated(self, proposal: Proposal) -> Proposal:
        """The proposal as a re-evaluation, if its mechanism is known."""
        first = next((p for p in self._trained if p.key == proposal.key), None)
        if first is None:
            return proposal
        return replace(proposal, verdict="repeated", name=first.name, costs=first.costs)

    def _draw(self, number: int, rng: np.random.Generator, num_failed: int) -> Attempt:
        context = self._context
        if number >= context.population:
            return self._algorithm.propose(rng, num_failed)
        if self._num_named < len(context.mechanisms):
            name, genome = context.mechanisms[self._num_named]
            self._num_named += 1
            return Attempt(genome, "mechanism", name)
        return context.sample(rng)
