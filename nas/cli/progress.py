"""How far a search is: what its events add up to, as the live display and plain lines show it.

Whoever does not search reads the same off a record. Numbers alone, no terminal. A generation is so
many proposals in a row, whether the search waits for all of them or proposes with a lag. Everything
that is replaced is replaced whole, so that a display may read from another thread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nas.searching.listener import Evaluated, Listener, Started
from nas.searching.told import REPEAT
from nas.store import Counts, front, named_members, open_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from nas.common.objectives import Objective
    from nas.evaluation.trial import Incident
    from nas.searching.listener import GenerationDone
    from nas.store import Candidate, PastTraining, Run

    Clock = Callable[[], float]

LAST_RESULTS: Final = 5
# Trainings over which the rate is taken: the last ones, since candidates grow or shrink.
RATE_WINDOW: Final = 40


class Progress(Listener):
    """The state of a search as far as its events told.

    Attributes:
        preparing: what goes on before it begins.
        started: what began; None before.
        done: trainings that ended, those of earlier sessions included.
        hypervolumes: of each complete generation.
        leaders: "best" in the first objective, "knee" and "cheapest" in the first cost, with the
            objective that is shown of it, as estimated when the last generation ended; as measured
            during the first one, and None before there is one.
        last: the last trainings, newest last.
        clock: a time in seconds; of a day's clock where a record is read.
        notice: what befell the machines since.
    """

    def __init__(self, clock: Clock) -> None:
        self.preparing = "preparing ..."
        self.started: Started | None = None
        self.done = self.generations_done = 0
        self.counts = Counts()
        self.hypervolumes: tuple[float, ...] = ()
        self.leaders: dict[str, tuple[Candidate, Objective] | None]
        self.leaders = {"best": None, "knee": None, "cheapest": None}
        self.last: tuple[Evaluated, ...] = ()
        self.notice = ""
        self.clock = clock
        self._times: tuple[float, ...] = ()
        self._trained_seconds = 0.0

    def on_reference(self, done: int, total: int) -> None:
        """Know how far the references are."""
        self.preparing = f"mha and uniform, to compare with: {done} of {total} trainings"

    def on_start(self, event: Started) -> None:
        """Begin, with what the record held before this process."""
        self.setup, self._times = event.setup, (self.clock(),)
        self.done, self._folder = event.num_recorded, event.folder
        with open_run(event.folder) as run:
            self.counts = run.counts()
            self._lead(run)
        self.started = event

    def read(self, run: Run) -> None:
        """Take over what a record tells at this moment, in place of events."""
        with run.snapshot():
            setup, sessions, generations = run.setup, run.sessions(), run.generations()
            trainings = run.last_trainings(RATE_WINDOW)
            self.setup, self.counts, self.done = setup, run.counts(), run.num_trainings()
            events = (self._event(run, one) for one in trainings[-LAST_RESULTS:])
            self.last = tuple(event for event in events if event is not None)
            # Leaders take longest to read, and change as generations end.
            if len(generations) != self.generations_done or not generations:
                self._lead(run)
            self.generations_done = len(generations)
            self.hypervolumes = tuple(generation.hypervolume for generation in generations)
        workers = sessions[-1].session.workers if sessions else 1
        since = sessions[-1].started if sessions else run.started
        own = [one for one in trainings if one.recorded >= since]
        if len(own) == len(trainings) == RATE_WINDOW:
            since, *own = own[0].recorded, *own[1:]
        self._times = tuple(m.timestamp() for m in (since, *(one.recorded for one in own)))
        self._trained_seconds = sum(one.evaluation.wall_seconds for one in own)
        self.started = Started(run.name, run.folder, setup, workers, self.done)

    @property
    def busy(self) -> int:
        """Workers that have something to train, by a record: what is proposed and has not ended."""
        assert self.started is not None
        counts, num_repeats = self.counts, self.setup.repeats
        firsts = counts.proposed - counts.repeated - counts.replayed - counts.rejected
        under_way = firsts * num_repeats + counts.repeated - self.done
        return max(0, min(self.started.workers, under_way))

    @property
    def busy_share(self) -> float | None:
        """Share of the workers' time that was training, over the last ones of a record."""
        assert self.started is not None
        there = (self._times[-1] - self._times[0]) * self.started.workers
        return min(1.0, self._trained_seconds / there) if there > 0 else None

    def on_incident(self, event: Incident) -> None:
        """Remember it until a training ends."""
        self.notice = event.text

    def on_evaluation(self, event: Evaluated) -> None:
        """Count what is done."""
        self.done += 1
        self.notice = ""
        self._times = (*self._times, self.clock())[-RATE_WINDOW - 1 :]
        self.last = (*self.last, event)[-LAST_RESULTS:]
        if not self.generations_done:
            with open_run(self._folder) as run:
                self._lead(run)

    def on_generation(self, event: GenerationDone) -> None:
        """Take over what the generation came to."""
        self.generations_done = event.generation.number + 1
        self.hypervolumes = (*self.hypervolumes, event.generation.hypervolume)
        # The record, which was read at the start, knows more than its own generations.
        if not event.is_replayed:
            self.counts = event.counts
            with open_run(self._folder) as run:
                self._lead(run)

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
        """Time that the trainings to go will take at this rate; None where it tells nothing."""
        rate = self.per_minute
        if not rate:
            return None
        left = 60 * self.to_go / rate - (self.clock() - self._times[-1])
        return left if left > 0 else None  # stopped, or stuck, or done

    def _event(self, run: Run, training: PastTraining) -> Evaluated | None:
        """A recorded training as the event that told of it; None where its genome is missing."""
        proposal = run.new_proposals([training.key]).get(training.key)
        if proposal is None:
            return None
        is_first = training.repeat < self.setup.repeats
        told = proposal if is_first else replace(proposal, operator=REPEAT)
        generation = proposal.number // self.setup.population
        return Evaluated(generation, told, training.repeat, training.evaluation)

    def _lead(self, run: Run) -> None:
        """Take the leaders from the record."""
        objectives = self.setup.objectives
        costs = [objective for objective in objectives if not objective.is_metric]
        found = named_members(objectives, front(run))
        ends = zip(self.leaders, (objectives[0], objectives[0], *costs[:1]), strict=False)
        held = {title: (found[title], end) for title, end in ends if title in found}
        self.leaders = {title: held.get(title) for title in self.leaders}
