"""How far a search is: what its events add up to, as the live display and plain lines show it.

Numbers alone, no terminal. A generation is so many proposals in a row, whether the search waits
for all of them or proposes with a lag. Everything that is replaced is replaced whole, so that a
display may read from another thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nas.objectives import as_costs
from nas.searching.listener import Listener
from nas.store import Candidate, Counts, candidates, open_run, summarise

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.evaluation.trial import Evaluation
    from nas.objectives import Objective
    from nas.searching.listener import Evaluated, GenerationDone, Started

    Clock = Callable[[], float]

LAST_RESULTS: Final = 5
# Trainings over which the rate is taken: the last ones, since candidates grow or shrink.
RATE_WINDOW: Final = 40


class Progress(Listener):
    """The state of a search as far as its events told.

    Attributes:
        started: what began; None before.
        done: trainings that ended, those of earlier sessions included.
        hypervolumes: of each complete generation.
        leaders: "best" in the first objective and "cheapest" in the first cost, with that
            objective; None before there is one.
        last: the last trainings, newest last.
    """

    def __init__(self, clock: Clock) -> None:
        self.started: Started | None = None
        self.done = self.generations_done = 0
        self.counts = Counts()
        self.hypervolumes: tuple[float, ...] = ()
        self.leaders: dict[str, tuple[Candidate, Objective] | None]
        self.leaders = {"best": None, "cheapest": None}
        self.last: tuple[Evaluated, ...] = ()
        self.clock = clock
        self._times: tuple[float, ...] = ()
        self._ended: dict[str, dict[int, Evaluation]] = {}  # by key, then by repeat

    def on_start(self, event: Started) -> None:
        """Begin, with what the record held before this process."""
        self.setup, self._times = event.setup, (self.clock(),)
        self.done = event.num_recorded
        if event.num_recorded:
            with open_run(event.folder) as run:
                for candidate in candidates(run):
                    self._consider(candidate)
                for (key, repeat), evaluation in run.evaluations().items():
                    self._ended.setdefault(key, {})[repeat] = evaluation
                self.counts = run.counts()
        self.started = event

    def on_evaluation(self, event: Evaluated) -> None:
        """Count what is done."""
        self.done += 1
        self._times = (*self._times, self.clock())[-RATE_WINDOW - 1 :]
        self.last = (*self.last, event)[-LAST_RESULTS:]
        ended = self._ended.setdefault(str(event.proposal.key), {})
        ended[event.repeat] = event.evaluation
        if len(ended) == self.setup.repeats and all(e.is_ok for e in ended.values()):
            means, errors = summarise([e.metrics for e in ended.values()])
            objectives = {**event.proposal.costs, **means}
            found = Candidate(event.proposal, objectives, errors, means, len(ended), None)
            self._consider(found)

    def on_generation(self, event: GenerationDone) -> None:
        """Take over what the generation came to."""
        self.generations_done = event.generation.number + 1
        self.hypervolumes = (*self.hypervolumes, event.generation.hypervolume)
        # The record, which was read at the start, knows more than its own generations.
        if not event.is_replayed:
            self.counts = event.counts

    @property
    def total(self) -> int:
        """Trainings of the whole run, as asked for."""
        return self.setup.generations * self.setup.population * self.setup.repeats

    @property
    def to_go(self) -> int:
        """Trainings not done yet."""
        return max(0, self.total - self.done)

    @property
    def per_minute(self) -> float | None:
        """Trainings a minute, over the last ones; None before the first."""
        if len(self._times) < 2 or self._times[-1] <= self._times[0]:
            return None
        return 60 * (len(self._times) - 1) / (self._times[-1] - self._times[0])

    @property
    def seconds_left(self) -> float | None:
        """Time that the trainings to go will take at this rate."""
        rate = self.per_minute
        if not rate:
            return None
        since = self.clock() - self._times[-1]
        return max(0.0, 60 * self.to_go / rate - since)

    def _consider(self, candidate: Candidate) -> None:
        """Keep a mechanism if it is the best or the cheapest so far."""
        objectives = self.setup.objectives
        costs = [objective for objective in objectives if not objective.is_metric]
        for title, objective in zip(self.leaders, (objectives[0], *costs[:1]), strict=False):
            known = self.leaders[title]
            mine = as_costs((objective,), candidate.objectives)
            if known is None or mine < as_costs((objective,), known[0].objectives):
                self.leaders = {**self.leaders, title: (candidate, objective)}
