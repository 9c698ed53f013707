"""Hand out trials to workers, and watch over both: what happens when a worker hangs or is lost.

The rules are here, free of any library; a `Pool` is what carries them out (`ray_backend` has one).
A worker has one trial at a time. One that hangs is ended, and its trial has failed. A lost one is
replaced. Where its machine is to blame (the node is gone or was taken back), its trial is begun
again as if nothing had been, however often. Else nobody knows: the trial is tried again, alone,
before it is recorded as failed, since most losses are a neighbour's that takes all memory. So is,
alone, a trial that ran out of memory beside others, and in another worker one that met an error.
Nothing here depends on who finishes first, and nothing walks all workers: there may be thousands.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nas.common.errors import DeviceError, RunError
from nas.evaluation.patience import Deadlines, NoWorkerTimeout
from nas.evaluation.pool import BLAMELESS, WorkerLostError, WorkerRefusedError
from nas.evaluation.trial import Evaluation, Incident, log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nas.evaluation.pool import Pool
    from nas.evaluation.trial import Budget, Kind, Reason, Trial

MAX_LOSSES: Final = 3  # of workers, before a trial is recorded; but the first, while alone
MAX_FAILED_STARTS: Final = 3  # in a row, where none has ever started; later it may be on its way
PAUSE_SECONDS: Final = 1.0  # before a worker is started again that died as it started; doubled
REFUSED_SECONDS: Final = 30.0  # or one that was refused, which may come to lie elsewhere
CALIBRATION_SECONDS: Final = 120.0  # after which a worker that measures its speed counts as lost


class Dispatcher:
    """An `Evaluator` that runs trials on the workers of a pool.

    Args:
        pool: where the workers come from; they start at once.
        workers: how many at most; those for whom there is no room yet are started all the same.
        budget: of every trial, for the record of a failure.
        patience: seconds after which a worker that did not answer is ended.
        start_seconds: how long there may be no worker at all: starting one imports torch, a busy
            cluster has a queue, and one that has lost its machines may get others.
        clock: gives seconds; does not go back.
    """

    def __init__(
        self,
        pool: Pool,
        workers: int,
        budget: Budget,
        *,
        patience: float,
        start_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers = workers
        self.on_incident: Callable[[Incident], None] = log
        self._pool, self._budget, self._patience, self._clock = pool, budget, patience, clock
        self._pending: list[_Ticket] = []
        self._slots: set[_Slot] = set()
        self._free: list[_Slot] = []
        self._awaited: dict[Any, _Slot | None] = {}  # who owes us what comes by each reference
        self._pauses: dict[Any, float] = {}  # of workers that are to be started after one
        self._deadlines = Deadlines(clock, self._awaited)
        self._silence = NoWorkerTimeout(clock, start_seconds, self._tell)
        self._num_ready = self._num_running = self._num_queued = self._failed_starts = 0
        self._runs_alone = self._has_started = self._is_closed = False
        self._refusals: set[str] = set()
        self._fault: DeviceError | None = None  # raised once all answers have been given
        for _ in range(workers):
            self._start()

    def calibrate(self) -> Mapping[str, Any]:
        """Have the first worker that is ready measure its speed; only while no trial is under way.

        Raises:
            DeviceError: no worker starts, or all that were asked are lost or hang.
        """
        self._queue(None, 0.0)
        ((_, measured),) = self._answers()
        found: Mapping[str, Any] = measured
        return found

    def submit(self, trials: Sequence[Trial]) -> None:
        """Queue trials, those with most work first, and give free workers theirs."""
        for trial in trials:
            self._queue(trial, trial.work)
        self._assign()

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Wait until trials are done, and give all that are; empty where none is under way.

        Raises:
            DeviceError: no worker starts, or none starts any more.
        """
        return [(ticket.trial, answer) for ticket, answer in self._answers() if ticket.trial]

    def close(self) -> None:
        """End all workers; what they were doing is forgotten, and what waits."""
        for slot in self._slots:
            self._pool.kill(slot.worker)
        for held in (self._slots, self._free, self._pending, self._awaited):
            held.clear()
        self._num_running = 0
        self._is_closed = True

    def _queue(self, trial: Trial | None, work: float) -> None:
        if self._is_closed:
            raise RunError("this evaluator was closed; expected a new one.")
        self._num_queued += 1
        heapq.heappush(self._pending, _Ticket(0, (-work, self._num_queued), trial))

    def _answers(self) -> list[_Answer]:
        answers: list[_Answer] = []
        while not (answers or self._fault) and (self._pending or self._num_running):
            try:
                self._gather(answers)
            except DeviceError as error:
                self._fault = error
        if self._fault and not answers:
            raise self._fault
        return answers

    def _gather(self, answers: list[_Answer]) -> None:
        """Wait for whatever comes next, and see to it."""
        self._assign()
        nearest = min(self._deadlines.next(), self._silence.next())
        timeout = None if nearest == math.inf else max(0.0, nearest - self._clock())
        for ref in self._pool.wait(timeout):
            if slot := self._awaited.pop(ref, None):  # else it was ended meanwhile
                answers += self._attend(slot, ref)
        for ref in self._deadlines.due():
            if slot := self._awaited.pop(ref):
                answers += self._give_up(slot, slot.ticket)
            else:
                self._start(self._pauses.pop(ref))
        self._silence.check()
        self._assign()  # before the caller takes its time over the answers

    def _assign(self) -> None:
        """Give each free worker a trial; one that was lost waits until it has the machine alone."""
        while self._pending and self._free:
            is_alone = self._pending[0].losses > 0
            if self._num_running and (is_alone or self._runs_alone):
                return
            slot, ticket = self._free.pop(), heapq.heappop(self._pending)
            slot.ticket, slot.since = ticket, self._clock()
            self._num_running, self._runs_alone = self._num_running + 1, is_alone
            patience = self._patience if ticket.trial else CALIBRATION_SECONDS
            ref = self._pool.submit(slot.worker, ticket.trial)
            self._awaited[ref] = slot
            self._deadlines.add(patience, ref)

    def _attend(self, slot: _Slot, ref: Any) -> list[_Answer]:
        """See to a worker that has answered, or was lost."""
        try:
            answer = self._pool.get(ref)
        except WorkerLostError as error:
            return self._lose(slot, slot.ticket, error)
        except WorkerRefusedError as error:
            self._refuse(slot, error)
            return []
        if slot.ticket is None:
            self._welcome(slot, answer)
            return []
        ticket = slot.ticket
        reason = answer.reason if isinstance(answer, Evaluation) else None
        if reason == "error" and not ticket.has_erred:  # maybe the machine is broken
            *_, last = (answer.error or "").splitlines() or [""]
            self._tell("error", f"tried again in another worker: {last}", slot)
            ticket.has_erred = True
            self._replace(slot)  # whatever was left behind ends with the process
        elif reason == "out_of_memory" and not ticket.losses and self.workers > 1:
            ticket.losses = 1  # maybe its neighbours held the memory
            self._release(slot)
        else:
            self._release(slot)
            return [(ticket, answer)]
        heapq.heappush(self._pending, ticket)
        return []

    def _welcome(self, slot: _Slot, name: str) -> None:
        """Take in a worker that has started."""
        slot.name = name
        self._num_ready += 1
        self._free.append(slot)
        self._has_started, self._failed_starts = True, 0
        self._silence.end()

    def _refuse(self, slot: _Slot, error: WorkerRefusedError) -> None:
        """Do without a worker for now; what it was to train is for another."""
        if error.is_last and not self._has_started:
            raise DeviceError(str(error)) from error
        self._silence.fault = str(error)
        if str(error) not in self._refusals:
            self._refusals.add(str(error))
            self._tell("refused", str(error), slot)
        if slot.ticket:
            heapq.heappush(self._pending, slot.ticket)
        self._replace(slot, REFUSED_SECONDS)

    def _lose(self, slot: _Slot, ticket: _Ticket | None, error: WorkerLostError) -> list[_Answer]:
        """Try again what a lost worker was training; some times, where it may be to blame."""
        is_blameless = error.cause in BLAMELESS
        if ticket is None:
            self._failed_starts += not is_blameless
            if not self._has_started and self._failed_starts >= MAX_FAILED_STARTS:
                raise DeviceError(
                    f"workers died as they started, {self._failed_starts} in a row: {error}."
                ) from error
            self._silence.fault = f"the last one died as it started: {error}"
            if not slot.paused:
                self._tell(error.cause, f"a worker died as it started, and is tried again: {error}")
            self._replace(slot, min(max(PAUSE_SECONDS, 2 * slot.paused), REFUSED_SECONDS))
            return []
        ticket.losses += not is_blameless
        if ticket.losses == MAX_LOSSES:
            text = f"its worker was lost, {MAX_LOSSES} times: {error}"
            return self._fail(slot, ticket, error.reason, text)
        self._tell(error.cause, f"a worker was lost ({error.cause}): {error}.", slot)
        self._replace(slot)
        heapq.heappush(self._pending, ticket)
        return []

    def _give_up(self, slot: _Slot, ticket: _Ticket | None) -> list[_Answer]:
        """End a worker that hangs; its trial has failed, a measurement is another one's."""
        if ticket is None or ticket.trial is None:
            text = f"no answer within {CALIBRATION_SECONDS:g} s"
            return self._lose(slot, ticket, WorkerLostError("process", text))
        text = f"no answer within {self._patience:g} s, so its worker was ended"
        return self._fail(slot, ticket, "time_limit", text)

    def _fail(self, slot: _Slot, ticket: _Ticket, reason: Reason, text: str) -> list[_Answer]:
        """Record the failure of what a worker was training, and replace the worker."""
        self._replace(slot)
        if ticket.trial is None:
            raise DeviceError(f"no worker could measure its speed: {text}.")
        budget, seconds = self._budget, self._clock() - slot.since
        failure = Evaluation.failure(ticket.trial, budget, reason, text, slot.name, seconds)
        return [(ticket, failure)]

    def _start(self, paused: float = 0.0) -> None:
        worker, ref = self._pool.start()
        slot = self._awaited[ref] = _Slot(worker, paused=paused)
        self._slots.add(slot)

    def _release(self, slot: _Slot) -> None:
        """A worker has nothing to do any more."""
        slot.ticket = None
        self._num_running -= 1
        self._free.append(slot)

    def _replace(self, slot: _Slot, seconds: float = 0.0) -> None:
        """End a worker and start a new one in its place, after so long."""
        self._pool.kill(slot.worker)
        self._slots.remove(slot)
        self._num_running -= slot.ticket is not None
        if slot.name:
            self._num_ready -= 1
            if not self._num_ready:
                self._silence.begin()
        if seconds:
            reminder = object()
            self._awaited[reminder], self._pauses[reminder] = None, seconds
            self._deadlines.add(seconds, reminder)
        else:
            self._start()

    def _tell(self, kind: Kind, text: str, slot: _Slot | None = None) -> None:
        trial = slot.ticket.trial if slot and slot.ticket else None
        about = (trial.key, trial.repeat) if trial else (None, None)
        self.on_incident(Incident(kind, text, slot.name if slot else "", *about))


@dataclass(slots=True, order=True)
class _Ticket:
    """A trial on its way, in the order in which they are handed out.

    Attributes:
        losses: how many times it was begun in vain, maybe by its own fault.
        trial: None asks a worker to measure its speed.
        has_erred: it met an error in another worker.
    """

    losses: int
    rank: tuple[float, int]
    trial: Trial | None
    has_erred: bool = False


_Answer: TypeAlias = tuple[_Ticket, Any]


@dataclass(slots=True, eq=False)
class _Slot:
    """A worker, and what it does.

    Attributes:
        name: host and process id, once it has started.
        since: when it was given its trial, s of the clock.
        ticket: what it trains.
        paused: how long it was waited before it was started, s; the ones before it had failed.
    """

    worker: Any
    name: str = ""
    since: float = 0.0
    ticket: _Ticket | None = None
    paused: float = 0.0
