"""Draw proposals as a function of earlier proposals and their results, without training.

Without a lag (``SearchConfig.lag``), a proposal is computed from all results of earlier
generations. With a lag, proposal t is computed from the results of proposals 0 to t - lag. Results
are passed to the algorithm in parts, since the model is fitted anew to each part: of a generation,
or of half the lag if this is less; in long searches, of a ``GROWTH``-th of all results. A resumed
run keeps its recorded proposals, even if rounding on another processor would lead to others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Final

import numpy as np

from nas.searching.algorithm import REPEAT, Algorithm, Attempt, SearchContext, TrialResult
from nas.searching.target_archive import TargetArchive
from nas.store import Proposal
from nas.store.records import TARGET, Estimate

# Number of attempts in a row without a new mechanism after which a space counts as exhausted.
MAX_ATTEMPTS: Final = 1000
GROWTH: Final = 20  # in long searches, results are passed on in parts of this fraction of them
# Attempts after which a known mechanism, or one far beyond a limit, may replace a new one.
MOST_REDRAWN: Final = 16
REPEAT_EVERY: Final = 10  # one in this number of proposals trains a known mechanism again


class Proposer:
    """Draws proposals in the order of their numbers.

    Most proposals are new mechanisms that the algorithm draws. One in ``REPEAT_EVERY`` proposals
    trains a mechanism again with another seed (``Archive.select_reevaluation``).
    """

    def __init__(self, algorithm: Algorithm, context: SearchContext) -> None:
        self._algorithm, self._context = algorithm, context
        self._filter, self._archive = context.filter, context.archive
        self.work_ratio = context.archive.work_ratio
        self._trained: list[Proposal] = []
        self._first: dict[str | None, Proposal] = {}  # by key of the mechanism
        self._num_results = 0  # results that archive and algorithm have received
        # The archive of the algorithm may lack results of the generations to record.
        self._recorded, self._num_recorded = context.archive.twin(), 0
        self._num_named = 0  # named mechanisms that have been proposed

    def follow(self, recorded: Iterable[Proposal]) -> None:
        """Restore the state of a resumed run from its recorded proposals, given in order."""
        for proposal in recorded:
            self._num_named += proposal.name is not None and proposal.verdict != "repeated"
            if proposal.is_new and proposal.key is not None:
                self._filter.add_known(proposal.key)
            if proposal.is_trained:
                self._add(proposal)

    def may_propose(self, number: int, num_results: int) -> bool:
        """Return whether the first ``num_results`` results suffice to draw proposal ``number``."""
        return num_results >= self._horizon(number)

    def propose(self, number: int, results: Sequence[TrialResult]) -> list[Proposal]:
        """Draw genomes until one is to be trained, and return all these attempts.

        The last attempt is the one to train. If ``MAX_ATTEMPTS`` attempts gave no such genome, the
        last attempt is not trained either, and the space is exhausted. ``results`` are those of
        proposals 0, 1, ..., up to the first proposal without a result.
        """
        horizon = self._horizon(number)
        self._pass_on(results[:horizon])
        self._archive.pending = self._trained[horizon:]
        rng = self._context.generator(number)
        attempts: list[Proposal] = []
        while len(attempts) < MAX_ATTEMPTS and not (attempts and attempts[-1].is_trained):
            attempt = self._reevaluation(number) or self._draw(number, rng, len(attempts))
            attempt = self._known(number, attempt, len(attempts)) or attempt
            proposal = self._filter.propose(attempt, number, len(attempts))
            is_known = attempt.operator in (REPEAT, TARGET)
            attempts.append(self._repeated(proposal) if is_known else proposal)
        if attempts[-1].is_trained:
            self._add(attempts[-1])
        return attempts

    def _add(self, proposal: Proposal) -> None:
        self._trained.append(proposal)
        self._first.setdefault(proposal.key, proposal)

    def new_estimates(self, results: Sequence[TrialResult]) -> tuple[list[Estimate], bool]:
        """Return ``Archive.new_posterior`` after the results of proposals 0, 1, ..."""
        if self._context.lag is None and self._horizon(len(results)) == len(results):
            self._pass_on(results)  # the next proposals are computed from the same results
            return self._archive.new_posterior()
        self._recorded.tell(results[self._num_recorded :])
        self._num_recorded = len(results)
        return self._recorded.new_posterior()

    def _horizon(self, number: int) -> int:
        """Return how many of the earliest results proposal ``number`` is computed from."""
        lag = self._context.lag
        latest = number if lag is None else max(0, number - lag + 1)
        *_, horizon = takewhile(lambda h: h <= latest, _horizons(self._context.batch))
        return horizon

    def _pass_on(self, results: Sequence[TrialResult]) -> None:
        """Pass results to archive and algorithm, in the same parts as before an interruption."""
        for end in takewhile(lambda h: h <= len(results), _horizons(self._context.batch)):
            if part := results[self._num_results : end]:
                self._archive.tell(part)
                self._algorithm.tell(part)
                self._num_results = end

    def _reevaluation(self, number: int) -> Attempt | None:
        if number % REPEAT_EVERY != REPEAT_EVERY - 1:
            return None
        chosen = self._archive.select_reevaluation()
        return None if chosen is None else Attempt(chosen.genome, REPEAT)

    def _known(self, number: int, new: Attempt, num_failed: int) -> Attempt | None:
        """Return a training of a known mechanism that is worth more than ``new``, or None.

        Without a target task, this is the algorithm's decision, and the result is None. If
        ``MOST_REDRAWN`` attempts gave no new mechanism, a known one is trained if any is worth it.
        """
        archive, is_first = self._archive, number < self._context.population
        if not isinstance(archive, TargetArchive) or is_first or new.operator == REPEAT:
            return None
        if number % 2 and (chosen := archive.next_spread()) is not None:
            return Attempt(chosen.genome, TARGET)
        option = archive.best_option()
        if option is None:
            return None
        info = self._filter.inspect(new.genome)
        if not info.is_new and num_failed < MOST_REDRAWN:
            return None
        if info.is_new and archive.gain_of(info.genome, info.costs) >= option.gain:
            return None
        return Attempt(option.result.genome, TARGET if option.is_target else REPEAT)

    def _repeated(self, proposal: Proposal) -> Proposal:
        first = self._first.get(proposal.key)
        if first is None:
            return proposal
        return replace(proposal, verdict="repeated", name=first.name, costs=first.costs)

    def _draw(self, number: int, rng: np.random.Generator, num_failed: int) -> Attempt:
        context = self._context
        if number < context.population and self._num_named < len(context.mechanisms):
            name, genome = context.mechanisms[self._num_named]
            self._num_named += 1
            return Attempt(genome, "mechanism", name)
        attempt = self._new(number, rng, num_failed)
        for failed in range(num_failed + 1, MOST_REDRAWN):
            if context.is_affordable(attempt.genome):
                break
            attempt = self._new(number, rng, failed)
        return attempt

    def _new(self, number: int, rng: np.random.Generator, num_failed: int) -> Attempt:
        if number >= self._context.population:
            return self._algorithm.propose(rng, num_failed)
        counts = Counter(
            op for proposal in self._trained for op in {node.op for node in proposal.genome.nodes}
        )
        return self._context.initial(rng, num_failed, counts)


def _horizons(batch: int) -> Iterator[int]:
    """Yield the numbers of results after which results are passed on, beginning with 0."""
    horizon = 0
    while True:
        yield horizon
        horizon += batch * max(1, horizon // (GROWTH * batch))
