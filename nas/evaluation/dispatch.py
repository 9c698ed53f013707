"""Hand out trials to workers, and watch over both: what happens when a worker hangs or is lost.

The rules are here, free of any library; a `Pool` is what carries them out (`ray_backend` has one).
A worker has one trial at a time. One that hangs is ended, and its trial has failed. A lost one is
replaced, and its trial is tried again, alone, before it is recorded as failed: most losses are the
machine's, or a neighbour's that takes all memory. So is a trial that ran out of memory beside
others. Nothing here depends on which worker does what, or on who finishes first.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from nas.errors import DeviceError, RunError
from nas.evaluation.trial import Evaluation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nas.evaluation.trial import Budget, Reason, Trial

MAX_LOSSES: Final = 3
"""Workers that a trial may take with it before it is recorded; but the first, while alone."""
MAX_FAILED_STARTS: Final = 3
"""In a row, where no worker has ever started; later the cluster may be on its way back."""
PAUSE_SECONDS: Final = 1.0
"""Before a worker is started again that died as it started."""
CALIBRATION_SECONDS: Final = 120.0
"""After which a worker that measures its speed counts as lost."""


class WorkerLostError(Exception):
    """A worker's process is gone, and its answer with it.

    Args:
        reason: "worker_lost", or "out_of_memory" where it was ended to save the machine.
        text: what is known about it.
    """

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Pool(Protocol):
    """Starts, feeds and ends workers. Answers are awaited by hashable references to them."""

    def start(self) -> tuple[Any, Any]:
        """Start a worker; give it and the reference to its name, which comes when it is ready."""
        ...

    def submit(self, worker: Any, trial: Trial | None) -> Any:
        """Have a free worker train, or measure its speed (None); give the answer's reference."""
        ...

    def wait(self, refs: Sequence[Any], timeout: float | None) -> Iterable[Any]:
        """Wait until one answer is there, at most `timeout` s; give all that are there by then."""
        ...

    def get(self, ref: Any) -> Any:
        """Get an answer that is there; raises WorkerLostError or a NasError in its place."""
        ...

    def kill(self, worker: Any) -> None:
        """End a worker at once, whatever it does; one that is gone already is no error."""
        ...


class Dispatcher:
    """An `Evaluator` that runs trials on the workers of a pool.

    Args:
        pool: where the workers come from; they start at once.
        workers: how many.
        budget: of every trial, for the record of a failure.
        patience: seconds after which a worker that did not answer is ended.
        start_seconds: how long there may be no worker at all: starting one imports torch, and a
            busy cluster has a queue.
    """

    def __init__(
        self,
        pool: Pool,
        workers: int,
        budget: Budget,
        *,
        patience: float,
        start_seconds: float,
    ) -> None:
        self.workers = workers
        self._pool, self._budget = pool, budget
        self._patience, self._start_seconds = patience, start_seconds
        self._pending: list[_Ticket] = []
        self._submitted = self._failed_starts = 0
        self._has_started = False
        self._last_ready = time.monotonic()
        self._slots = [_Slot(*pool.start()) for _ in range(workers)]

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
        self._slots, self._pending = [], []

    def _queue(self, trial: Trial | None, work: float) -> None:
        if not self._slots:
            raise RunError("this evaluator was closed; expected a new one.")
        heapq.heappush(self._pending, _Ticket(0, (-work, self._submitted), trial))
        self._submitted += 1

    def _answers(self) -> list[_Answer]:
        answers: list[_Answer] = []
        while not answers and (self._pending or any(slot.ticket for slot in self._slots)):
            self._assign()
            for slot, has_answer in self._wait():
                answers += self._attend(slot, has_answer)
            self._assign()  # before the caller takes its time over the answers
        return answers

    def _assign(self) -> None:
        """Give each free worker a trial; one that was lost waits until it has the machine alone."""
        for slot in self._slots:
            if self._pending and slot.is_ready and slot.ticket is None:
                running = [other.ticket for other in self._slots if other.ticket]
                if running and (self._pending[0].losses or running[0].losses):
                    return
                slot.ticket = heapq.heappop(self._pending)
                slot.awaited = self._pool.submit(slot.worker, slot.ticket.trial)
                slot.since = time.monotonic()

    def _wait(self) -> list[tuple[_Slot, bool]]:
        """Wait for workers that answer, or have used up our patience; say which of the two."""
        slots = {slot.awaited: slot for slot in self._slots if slot.awaited is not None}
        deadline = min(self._deadline(slot) for slot in slots.values())
        timeout = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
        answered = set(self._pool.wait(list(slots), timeout))
        now = time.monotonic()
        return [
            (slot, ref in answered)
            for ref, slot in slots.items()
            if ref in answered or now >= self._deadline(slot)
        ]

    def _deadline(self, slot: _Slot) -> float:
        """When our patience with a worker that we wait for ends, monotonic clock, s."""
        if slot.ticket is not None:
            return slot.since + (self._patience if slot.ticket.trial else CALIBRATION_SECONDS)
        if any(other.is_ready for other in self._slots):
            return math.inf
        return self._last_ready + self._start_seconds

    def _attend(self, slot: _Slot, has_answer: bool) -> list[_Answer]:
        """See to a worker that has answered, or should have."""
        ticket = slot.ticket
        if ticket is None:
            self._welcome(slot, has_answer)
            return []
        if not has_answer:
            return self._give_up(slot, ticket)
        try:
            answer = self._pool.get(slot.awaited)
        except WorkerLostError as error:
            return self._lose(slot, ticket, error)
        slot.ticket = slot.awaited = None
        is_short = isinstance(answer, Evaluation) and answer.reason == "out_of_memory"
        if is_short and not ticket.losses and self.workers > 1:
            # Its neighbours may have held the memory: it counts as lost, once, and so runs alone.
            self._try_again(ticket)
            return []
        return [(ticket, answer)]

    def _welcome(self, slot: _Slot, has_answer: bool) -> None:
        """Take in a worker that has started, or find out why it did not."""
        if not has_answer:
            raise DeviceError(
                f"no worker started within {self._start_seconds:.0f} s: the cluster may be busy. "
                "Try fewer workers, or train on this machine with --backend local."
            )
        try:
            slot.name = self._pool.get(slot.awaited)
        except WorkerLostError as error:
            self._failed_starts += 1
            is_over = time.monotonic() >= self._deadline(slot)
            if is_over or (not self._has_started and self._failed_starts >= MAX_FAILED_STARTS):
                raise DeviceError(
                    f"workers died as they started, {self._failed_starts} in a row: {error}."
                ) from error
            time.sleep(PAUSE_SECONDS)
            self._replace(slot)
            return
        slot.awaited, slot.is_ready, self._has_started = None, True, True
        self._last_ready, self._failed_starts = time.monotonic(), 0

    def _give_up(self, slot: _Slot, ticket: _Ticket) -> list[_Answer]:
        """End a worker that hangs; its trial has failed, a measurement is another one's."""
        if ticket.trial is None:
            text = f"no answer within {CALIBRATION_SECONDS:g} s"
            return self._lose(slot, ticket, WorkerLostError("worker_lost", text))
        text = f"no answer within {self._patience:g} s, so its worker was ended"
        return self._fail(slot, ticket, "time_limit", text)

    def _lose(self, slot: _Slot, ticket: _Ticket, error: WorkerLostError) -> list[_Answer]:
        """Try again what a lost worker was training, some times, then record it as failed.

        Who was to blame cannot be seen: the worker may have died of another's memory.
        """
        if ticket.losses + 1 == MAX_LOSSES:
            text = f"its worker was lost, {MAX_LOSSES} times: {error}"
            return self._fail(slot, ticket, error.reason, text)
        self._replace(slot)
        self._try_again(ticket)
        return []

    def _try_again(self, ticket: _Ticket) -> None:
        ticket.losses += 1
        heapq.heappush(self._pending, ticket)

    def _fail(self, slot: _Slot, ticket: _Ticket, reason: Reason, text: str) -> list[_Answer]:
        """Record the failure of what a worker was training, and replace the worker."""
        self._replace(slot)
        if ticket.trial is None:
            raise DeviceError(f"no worker could measure its speed: {text}.")
        budget, seconds = self._budget, time.monotonic() - slot.since
        failure = Evaluation.failure(ticket.trial, budget, reason, text, slot.name, seconds)
        return [(ticket, failure)]

    def _replace(self, slot: _Slot) -> None:
        """End a slot's worker and start a new one in its place."""
        self._pool.kill(slot.worker)
        if slot.is_ready:
            self._last_ready = time.monotonic()
        self._slots[self._slots.index(slot)] = _Slot(*self._pool.start())


@dataclass(slots=True, order=True)
class _Ticket:
    """A trial on its way through the workers, in the order in which they are handed out.

    Attributes:
        losses: how many times it was begun in vain.
        trial: None asks a worker to measure its speed.
    """

    losses: int
    rank: tuple[float, int]
    trial: Trial | None


_Answer = tuple[_Ticket, Any]


@dataclass(slots=True, eq=False)
class _Slot:
    """A worker, and what it does.

    Attributes:
        awaited: the reference to what comes next from it: its name, then answers; None where it
            has nothing to do.
        is_ready: it has started.
        name: host and process id, once it has started.
        since: when it was given its trial; monotonic clock, s.
        ticket: what it trains.
    """

    worker: Any
    awaited: Any
    is_ready: bool = False
    name: str = ""
    since: float = 0.0
    ticket: _Ticket | None = None
