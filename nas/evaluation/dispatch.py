"""Assign trials to workers, and decide what follows if a worker hangs, dies or refuses to train.

A worker is a process that runs one trial at a time. A `Pool` starts, calls and ends workers; this
module contains only the rules:

    a worker does not answer in time    the worker is ended, and its trial fails
    its machine or GPU is lost          the trial starts again, any number of times
    its process ends for other reasons  the trial is retried while no other trial runs, and fails
                                        after `MAX_LOSSES` losses
    a worker refuses to train           the trial starts again on another worker
    a trial runs out of memory          the trial is retried once while no other trial runs, with
                                        all of the memory that workers share
    a trial raises an error             the trial is retried once in another process

Most processes end because the processes of a machine together need more memory than it has; hence
the retry while no other trial runs. Results do not depend on the order in which workers finish. No
operation iterates over all workers, since there may be thousands.

Ray's own options `max_restarts` and `max_task_retries` are not used. They treat most losses of a
machine like a crash of the trial, restart workers without back-off, and report nothing. They also
cannot retry a task while no other task runs.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from nas.common.errors import DeviceError
from nas.evaluation.pool import BLAMELESS, Pool, WorkerLostError, WorkerRefusedError
from nas.evaluation.trial import Budget, Evaluation, Incident, Kind, Reason, Trial, log

MAX_LOSSES: Final = 3  # lost workers until a trial fails; after the first loss it runs alone
MAX_FAILED_STARTS: Final = 3  # consecutive failed starts, if no worker has ever started
PAUSE_SECONDS: Final = 1.0  # first back-off after a failed start of a worker; it doubles each time
REFUSED_SECONDS: Final = 30.0  # back-off after a refused worker, and the longest back-off
CALIBRATION_SECONDS: Final = 120.0  # time limit of a calibration; its worker then counts as lost
NO_WORKER_SECONDS: Final = 30.0  # time without any worker until the wait is reported


class Dispatcher:
    """An `Evaluator` that runs trials, which are trainings, on the worker processes of a pool.

    Args:
        pool: starts, calls and ends workers.
        workers: largest number of workers. All are requested at once; the pool starts as many as
            there is room for, and the other requests wait.
        budgets: epochs, examples and precision of trials of the task and of the target task, which
            failed evaluations contain.
        patience: seconds after which a worker that has not answered is ended; math.inf for never.
        start_seconds: seconds without any worker after which `wait` raises DeviceError.
        clock: function that returns a monotonic time in seconds.
    """

    def __init__(
        self,
        pool: Pool,
        workers: int,
        budgets: tuple[Budget, Budget],
        *,
        patience: float,
        start_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers = workers
        self.on_incident: Callable[[Incident], None] = log
        self._pool, self._budgets, self._patience, self._clock = pool, budgets, patience, clock
        self._pending: list[_Ticket] = []  # a heap
        self._finished: list[tuple[_Ticket, Any]] = []  # tickets with their answers
        self._slots: set[_Slot] = set()
        self._free: list[_Slot] = []
        self._awaited: dict[Any, _Slot] = {}  # by the reference of an answer or of a back-off
        self._timers: list[tuple[float, int, Any]] = []  # a heap of (time, number, reference)
        self._numbers = count()
        self._start_seconds, self._start_fault = start_seconds, ""
        self._no_worker_since: float | None = clock()  # None while there is a worker
        self._is_wait_reported = False
        self._num_ready = self._num_running = self._failed_starts = 0
        self._runs_alone = self._has_started = self._is_closed = False
        self._refusals: set[str] = set()
        self._fault: DeviceError | None = None  # raised once all finished trials are returned
        for _ in range(workers):
            self._start()

    def calibrate(self) -> Mapping[str, Any]:
        """Measure the unit times of operations on the first ready worker, and return them.

        Call this method only while no trial runs.

        Raises:
            DeviceError: no worker starts, or `MAX_LOSSES` workers were lost during the measurement.
        """
        self._queue(None, 0.0)
        ((_, calibration),) = self._wait()
        result: Mapping[str, Any] = calibration
        return result

    def submit(self, trials: Sequence[Trial]) -> None:
        """Queue trials, which are trainings to run, and start as many as there are free workers.

        Trials with the most work start first.
        """
        for trial in trials:
            self._queue(trial, trial.work)
        self._assign()

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """Block until a trial finishes, and return all finished trials with their evaluations.

        The list is empty if no trial is queued or running.

        Raises:
            DeviceError: no worker starts within the time allowed.
        """
        return [(ticket.trial, answer) for ticket, answer in self._wait() if ticket.trial]

    def close(self) -> None:
        """End all workers and drop all queued and running trials."""
        for slot in self._slots:
            self._pool.kill(slot.worker)
        for collection in (self._slots, self._free, self._pending, self._awaited):
            collection.clear()
        self._num_running = 0
        self._is_closed = True

    def _queue(self, trial: Trial | None, work: float) -> None:
        assert not self._is_closed
        heapq.heappush(self._pending, _Ticket(0, (-work, next(self._numbers)), trial))

    def _wait(self) -> list[tuple[_Ticket, Any]]:
        """Block until a ticket is finished; return all finished tickets with their answers."""
        while not (self._finished or self._fault) and (self._pending or self._num_running):
            try:
                self._handle_events()
            except DeviceError as error:
                self._fault = error
        if self._fault and not self._finished:
            raise self._fault
        finished, self._finished = self._finished, []
        return finished

    def _handle_events(self) -> None:
        self._assign()
        deadline = min(self._next_timer(), self._check_workers())
        timeout = None if deadline == math.inf else max(0.0, deadline - self._clock())
        for ref in self._pool.wait(timeout):
            if slot := self._awaited.pop(ref, None):  # None: the worker was ended meanwhile
                self._handle(slot, ref)
        while self._next_timer() <= self._clock():
            self._time_out(self._awaited.pop(heapq.heappop(self._timers)[2]))
        self._assign()  # workers run while the caller handles the finished trials

    def _assign(self) -> None:
        """Start queued trials on free workers.

        A trial that has lost a worker, or the memory that it needed, runs alone: it starts only
        while no other trial runs, and no other trial starts before it ends.
        """
        while self._pending and self._free:
            is_alone = self._pending[0].losses > 0
            if self._num_running and (is_alone or self._runs_alone):
                return
            slot, ticket = self._free.pop(), heapq.heappop(self._pending)
            slot.ticket, slot.since = ticket, self._clock()
            self._num_running, self._runs_alone = self._num_running + 1, is_alone
            ref = self._pool.submit(slot.worker, ticket.trial, is_alone=is_alone)
            self._expect(ref, slot, self._patience if ticket.trial else CALIBRATION_SECONDS)

    def _expect(self, ref: Any, slot: _Slot, seconds: float) -> None:
        """Register that a worker owes the answer ``ref``, and stop waiting after ``seconds``."""
        self._awaited[ref] = slot
        if seconds < math.inf:
            heapq.heappush(self._timers, (self._clock() + seconds, next(self._numbers), ref))

    def _next_timer(self) -> float:
        while self._timers and self._timers[0][2] not in self._awaited:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else math.inf

    def _check_workers(self) -> float:
        """Report it as an incident if there has been no worker for `NO_WORKER_SECONDS`.

        Returns:
            The clock time at which to check again; math.inf while there is a worker.

        Raises:
            DeviceError: there has been no worker for ``start_seconds``.
        """
        if self._no_worker_since is None:
            return math.inf
        waited, limit = self._clock() - self._no_worker_since, f"{self._start_seconds:.0f} s"
        why = f"; {self._start_fault.rstrip('.')}" if self._start_fault else ""
        if waited >= self._start_seconds:
            raise DeviceError(
                f"no worker started within {limit}: the cluster may be busy{why}. Try fewer "
                "workers, a longer --start-seconds, or train on this machine with --backend local."
            )
        if waited < NO_WORKER_SECONDS:
            return self._no_worker_since + min(NO_WORKER_SECONDS, self._start_seconds)
        if not self._is_wait_reported:
            self._is_wait_reported = True
            text = f"no worker for {NO_WORKER_SECONDS:.0f} s{why}: waiting for the cluster, {limit}"
            self._report("waiting", f"{text} in all (--start-seconds).")
        return self._no_worker_since + self._start_seconds

    def _handle(self, slot: _Slot, ref: Any) -> None:
        """Handle the answer ``ref`` of a worker, or the worker's loss or refusal to train."""
        ticket = slot.ticket
        try:
            answer = self._pool.get(ref)
        except WorkerLostError as error:
            return self._lose(slot, ticket, error) if ticket else self._fail_to_start(slot, error)
        except WorkerRefusedError as error:
            return self._refuse(slot, error)
        if ticket is None:  # the worker has started
            slot.name = answer
            self._num_ready += 1
            self._free.append(slot)
            self._has_started, self._failed_starts = True, 0
            self._no_worker_since, self._start_fault = None, ""
            if self._is_wait_reported:
                self._is_wait_reported = False
                self._report("back", "there are workers again.")
            return None
        reason = answer.reason if isinstance(answer, Evaluation) else None
        if reason == "error" and not ticket.has_erred:  # the machine may be broken
            *_, last = (answer.error or "").splitlines() or [""]
            self._report("error", f"tried again in another worker: {last}", slot)
            ticket.has_erred = True
            heapq.heappush(self._pending, ticket)
            return self._replace(slot)  # another process has no state that the error left behind
        slot.ticket = None
        self._num_running -= 1
        self._free.append(slot)
        if reason == "out_of_memory" and not ticket.losses and self.workers > 1:
            ticket.losses = 1  # trials on other workers may have used the memory
            return heapq.heappush(self._pending, ticket)
        return self._finished.append((ticket, answer))

    def _refuse(self, slot: _Slot, error: WorkerRefusedError) -> None:
        """Replace a worker that refused to train, after `REFUSED_SECONDS`; queue its trial again.

        Raises:
            DeviceError: all machines have refused, and no worker has ever started.
        """
        if error.is_last and not self._has_started:
            raise DeviceError(str(error)) from error
        self._start_fault = str(error)
        if str(error) not in self._refusals:
            self._refusals.add(str(error))
            self._report("refused", str(error), slot)
        if slot.ticket:
            heapq.heappush(self._pending, slot.ticket)
        self._replace(slot, REFUSED_SECONDS)

    def _fail_to_start(self, slot: _Slot, error: WorkerLostError) -> None:
        """Replace a worker that was lost while it started, after twice its previous pause.

        Raises:
            DeviceError: `MAX_FAILED_STARTS` starts have failed, and no worker has ever started.
        """
        self._failed_starts += error.cause not in BLAMELESS
        if not self._has_started and self._failed_starts >= MAX_FAILED_STARTS:
            raise DeviceError(
                f"workers died as they started, {self._failed_starts} in a row: {error}."
            ) from error
        self._start_fault = f"the last one died as it started: {error}"
        if not slot.paused:
            text = f"a worker died as it started, and is tried again: {error}"
            self._report(error.cause, text)
        self._replace(slot, min(max(PAUSE_SECONDS, 2 * slot.paused), REFUSED_SECONDS))

    def _lose(self, slot: _Slot, ticket: _Ticket, error: WorkerLostError) -> None:
        """Replace a lost worker, and queue its trial again; after `MAX_LOSSES` losses, fail it."""
        ticket.losses += error.cause not in BLAMELESS
        if ticket.losses == MAX_LOSSES:
            text = f"its worker was lost, {MAX_LOSSES} times: {error}"
            reason: Reason = "out_of_memory" if error.cause == "memory" else "worker_lost"
            return self._fail(slot, ticket, reason, text)
        self._report(error.cause, f"a worker was lost ({error.cause}): {error}.", slot)
        heapq.heappush(self._pending, ticket)
        return self._replace(slot)

    def _time_out(self, slot: _Slot) -> None:
        """Start a worker whose pause has ended, or replace a worker that has not answered in time.

        The trial of the replaced worker fails. If the worker was measuring unit times, the
        measurement is queued again.
        """
        ticket = slot.ticket
        if ticket is None:
            self._start(slot.paused)
        elif ticket.trial is None:
            text = f"no answer within {CALIBRATION_SECONDS:g} s"
            self._lose(slot, ticket, WorkerLostError("process", text))
        else:
            text = f"no answer within {self._patience:g} s, so its worker was ended"
            self._fail(slot, ticket, "time_limit", text)

    def _fail(self, slot: _Slot, ticket: _Ticket, reason: Reason, text: str) -> None:
        """Replace a worker, and finish its trial with a failed evaluation.

        Raises:
            DeviceError: the worker was measuring unit times and has no trial.
        """
        self._replace(slot)
        if ticket.trial is None:
            raise DeviceError(f"no worker could measure its speed: {text}.")
        budget, seconds = self._budgets[ticket.trial.is_target], self._clock() - slot.since
        failure = Evaluation.failure(ticket.trial, budget, reason, text, slot.name, seconds)
        self._finished.append((ticket, failure))

    def _start(self, paused: float = 0.0) -> None:
        worker, ref = self._pool.start()
        slot = _Slot(worker, paused=paused)
        self._slots.add(slot)
        self._expect(ref, slot, math.inf)

    def _replace(self, slot: _Slot, pause: float = 0.0) -> None:
        """End a worker, and start another one in its place after ``pause`` seconds."""
        self._pool.kill(slot.worker)
        self._slots.remove(slot)
        self._num_running -= slot.ticket is not None
        if slot.name:
            self._num_ready -= 1
            if not self._num_ready:
                self._no_worker_since = self._clock()
        if pause:
            self._expect(object(), _Slot(None, paused=pause), pause)
        else:
            self._start()

    def _report(self, kind: Kind, text: str, slot: _Slot | None = None) -> None:
        trial = slot.ticket.trial if slot and slot.ticket else None
        key, repeat = (trial.key, trial.repeat) if trial else (None, None)
        self.on_incident(Incident(kind, text, slot.name if slot else "", key, repeat))


@dataclass(slots=True, order=True)
class _Ticket:
    """A queued trial or measurement of unit times; tickets sort in the order in which they start.

    Attributes:
        losses: number of lost workers for which the trial may be responsible.
        rank: negative work and number of the submission, which order tickets with equal losses.
        trial: the trial to run; None for a measurement of unit times.
        has_erred: whether an earlier attempt of the trial raised an error.
    """

    losses: int
    rank: tuple[float, int]
    trial: Trial | None
    has_erred: bool = False


@dataclass(slots=True, eq=False)
class _Slot:
    """A worker, and the queued trial or measurement (`_Ticket`) that it runs.

    Attributes:
        worker: the worker, as `Pool.start` returned it; None during the pause before its start.
        name: host name and process id of the worker; empty until it has started.
        since: clock time at which the ticket started.
        ticket: the ticket that the worker runs; None while it starts or is free.
        paused: length in seconds of the pause before the worker's start.
    """

    worker: Any
    name: str = ""
    since: float = 0.0
    ticket: _Ticket | None = None
    paused: float = 0.0
