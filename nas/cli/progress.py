"""How far a search is: what its events add up to, as the live display and plain lines show it.

Numbers alone, no terminal. Everything that is replaced is replaced whole, so that a display may
read from another thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nas.store import Counts, summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nas.evaluation.record import Evaluation, Objective
    from nas.search.listener import Evaluated, GenerationDone, GenerationStarted, Started
    from nas.store import Candidate, RunSetup

    Clock = Callable[[], float]

LAST_RESULTS: Final = 5
# Trainings over which the rate is taken: the last ones, since candidates grow or shrink.
RATE_WINDOW: Final = 40


@dataclass(frozen=True)
class Mark:
    """A trained mechanism worth showing: its digest, formula and mean objectives."""

    digest: str
    formula: str
    objectives: Mapping[str, float]


class Progress:
    """The state of a search as far as its events told."""

    def __init__(self, started: Started, clock: Clock) -> None:
        self.run = started.run
        self.setup: RunSetup = started.setup
        self.workers = started.workers
        self.done = started.num_recorded
        self.num_recorded = started.num_recorded
        self.number = 0
        self.generation_done = self.generation_total = 0
        self.generations_done = 0
        self.counts = Counts()
        self.failed = 0
        self.hypervolumes: tuple[float, ...] = ()
        self.best: Mark | None = None
        self.cheapest: Mark | None = None
        self.last: tuple[Evaluated, ...] = ()
        self._clock = clock
        self._times: tuple[float, ...] = ()
        self._repeats: dict[str, list[Evaluation]] = {}

    def recall(self, candidates: tuple[Candidate, ...], counts: Counts) -> None:
        """Take in what the record held before this process began."""
        for candidate in candidates:
            proposal = candidate.proposal
            self._consider(Mark(proposal.digest, proposal.formula, candidate.objectives))
        self.counts, self.failed = counts, counts.failed

    def start_generation(self, event: GenerationStarted) -> None:
        """A generation was proposed."""
        self.number = event.number
        self.generation_done = event.recorded
        self.generation_total = event.recorded + event.to_train
        if event.to_train and not self._times:
            self._times = (self._clock(),)

    def add(self, event: Evaluated) -> None:
        """A training ended."""
        self.done += 1
        self.generation_done += 1
        self._times = (*self._times, self._clock())[-RATE_WINDOW - 1 :]
        self.last = (*self.last, event)[-LAST_RESULTS:]
        proposal = event.proposal
        repeats = self._repeats.setdefault(proposal.digest, [])
        repeats.append(event.evaluation)
        if not event.evaluation.is_ok:
            # A candidate fails once, however many of its repeats do.
            self.failed += sum(not e.is_ok for e in repeats) == 1
        elif len(repeats) == self.setup.repeats and all(e.is_ok for e in repeats):
            means, _ = summarise([e.objectives for e in repeats])
            self._consider(Mark(proposal.digest, proposal.formula, means))

    def end_generation(self, event: GenerationDone) -> None:
        """A generation is complete."""
        self.generations_done = event.generation.number + 1
        self.hypervolumes = (*self.hypervolumes, event.generation.hypervolume)
        # While the record is replayed, it knows more than the replay has told so far.
        if not event.is_replayed:
            self.counts, self.failed = event.counts, event.counts.failed

    @property
    def total(self) -> int:
        """Trainings of the whole run, as asked for."""
        return self.setup.generations * self.setup.population * self.setup.repeats

    @property
    def to_go(self) -> int:
        """Trainings not done yet."""
        setup = self.setup
        later = max(0, setup.generations - self.number - 1) * setup.population * setup.repeats
        return max(0, self.generation_total - self.generation_done) + later

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
        since = self._clock() - self._times[-1]
        return max(0.0, 60 * self.to_go / rate - since)

    @property
    def cheap_objective(self) -> Objective | None:
        """What the cheapest is cheapest in: the first objective that is minimised."""
        return next((o for o in self.setup.objectives if o.direction == "min"), None)

    def _consider(self, mark: Mark) -> None:
        """Keep a mechanism if it is the best or the cheapest so far."""
        accuracy = mark.objectives.get("accuracy")
        if accuracy is not None and (
            self.best is None or accuracy > self.best.objectives["accuracy"]
        ):
            self.best = mark
        cheap = self.cheap_objective
        if cheap is not None and (
            self.cheapest is None
            or mark.objectives[cheap.name] < self.cheapest.objectives[cheap.name]
        ):
            self.cheapest = mark
