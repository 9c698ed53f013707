"""Assign trials to workers, each a process of a pool that runs one trial at a time.

    a worker does not answer in time    its process is ended, and its trial fails
    its machine is lost                 the trial starts again, any number of times
    its process ends, the trial runs    the trial is retried while no other trial runs, with all of
    out of memory, or it says that      the memory that workers share; the second time it fails
    its machine cannot train
    it says so as it starts             it gets no trials, and no other worker starts in its place

Most processes end because the processes of a machine together need more memory than it has; hence
the retry while no other trial runs. No operation iterates over all workers: there may be thousands.
Ray's own restarts are not used: an actor with `max_restarts` raises the same error whether its
process crashed, memory ran out or its machine was lost (Ray 2.60).
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, TypeAlias

from nas.common.errors import DeviceError
from nas.evaluation.trial import Budget, Evaluation, Incident, IncidentKind, Reason, Trial, log

MAX_STARTS: Final = 3  # consecutive failed starts of a worker, which is then not started again
NO_WORKER_SECONDS: Final = 30.0  # time without any worker until the wait is reported
RETRIED_AT_ONCE: Final[frozenset[Reason]] = frozenset({"out_of_memory", "worker_lost"})

Cause: TypeAlias = Literal["node", "memory", "process"]


class WorkerLostError(Exception):
    """A worker's process ended without an answer.

    ``cause``: "node" if the machine is lost, "memory" if the process was ended to free memory, and
    "process" if it ended for another reason.
    """

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class Dispatcher:
    """An `Evaluator` on the worker processes of a pool.

    Args:
        pool: starts, calls and ends worker processes, as `nas.evaluation.ray_backend.ActorPool`.
        resources: an argument of ``pool.start`` for each worker. All workers are requested at once;
            the pool starts as many as there is room for, and the other requests wait.
        budgets: budgets of trials of the task and of the target task, for failed evaluations.
        patience: seconds after which a worker that has not answered is ended; math.inf for never.
        start_seconds: seconds without any worker after which `wait` and `ready_worker` raise
            DeviceError.
        clock: function that returns a monotonic time in seconds.
    """

    def __init__(
        self,
        pool: Any,
        resources: Sequence[Any],
        budgets: tuple[Budget, Budget],
        *,
        patience: float,
        start_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers = len(resources)
        self.on_incident: Callable[[Incident], None] = log
        self._pool, self._budgets, self._patience, self._clock = pool, budgets, patience, clock
        self._pending: list[_Ticket] = []  # a heap
        self._finished: list[tuple[Trial, Evaluation]] = []
        self._starting: dict[Any, _Worker] = {}  # by reference
        self._running: dict[Any, _Worker] = {}  # by reference; the longest training is first
        self._free: list[_Worker] = []
        self._unfit: list[_Worker] = []  # kept, so that no other worker starts in their place
        self._numbers = count()
        self._start_seconds, self._fault = start_seconds, ""
        self._waiting_since, self._is_wait_reported = clock(), False
        for each in resources:
            self._start(each)

    def submit(self, trials: Sequence[Trial]) -> None:
        """See `Evaluator`; trials with the most work start first."""
        for trial in trials:
            ticket = _Ticket(False, (-trial.work, next(self._numbers)), trial)
            heapq.heappush(self._pending, ticket)
        self._assign()

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """See `Evaluator`; raise DeviceError if no worker can train, or none starts in time."""
        while not self._finished and (self._pending or self._running):
            self._handle_events()
        finished, self._finished = self._finished, []
        return finished

    def ready_worker(self) -> Any:
        """Block until a worker is free, and return it. Call this method while no trial runs."""
        while not self._free:
            self._handle_events()
        return self._free[-1].process

    def close(self) -> None:
        """End all workers and drop all queued and running trials."""
        busy = *self._starting.values(), *self._running.values()
        for worker in (*busy, *self._free, *self._unfit):
            self._pool.kill(worker.process)
        for workers in (self._starting, self._running, self._free, self._unfit, self._pending):
            workers.clear()

    def _start(self, resources: Any, failures: int = 0) -> None:
        process, ref = self._pool.start(resources)
        self._starting[ref] = _Worker(process, resources, failures)

    def _assign(self) -> None:
        """Start queued trials on free workers; a trial that is retried runs alone."""
        while self._pending and self._free:
            other = self._longest_busy()
            if other and (other.ticket.is_retry or self._pending[0].is_retry):
                return
            worker = self._free.pop()
            worker.ticket, worker.since = heapq.heappop(self._pending), self._clock()
            is_alone = worker.ticket.is_retry
            ref = self._pool.submit(worker.process, worker.ticket.trial, is_alone=is_alone)
            self._running[ref] = worker

    def _longest_busy(self) -> _Worker | None:
        return next(iter(self._running.values()), None)

    def _handle_events(self) -> None:
        """Wait for answers or the next deadline, and handle what happened."""
        answers = self._pool.wait(0.0)  # a worker may have started since the last call
        if not answers:
            deadline = min(self._check_workers(), self._next_limit())
            timeout = None if deadline == math.inf else max(0.0, deadline - self._clock())
            answers = self._pool.wait(timeout)
        for ref in answers:
            if worker := self._starting.pop(ref, None):
                self._handle_start(worker, ref)
            elif worker := self._running.pop(ref, None):  # None: the worker was ended meanwhile
                self._handle_answer(worker, ref)
        while self._next_limit() <= self._clock():
            worker = self._running.pop(next(iter(self._running)))
            text = f"no answer within {self._patience:g} s, so its worker was ended"
            self._finished.append((worker.ticket.trial, self._failure(worker, "time_limit", text)))
            self._replace(worker)
        self._assign()  # workers run while the caller handles the finished trials

    def _next_limit(self) -> float:
        longest = self._longest_busy()
        return longest.since + self._patience if longest else math.inf

    def _check_workers(self) -> float:
        """Report or raise if there is no worker for long; return the time of the next check."""
        if self._free or self._running:
            return math.inf
        if not self._starting:
            raise DeviceError(self._fault)
        waited, limit = self._clock() - self._waiting_since, f"{self._start_seconds:.0f} s"
        why = f"; {self._fault.rstrip('.')}" if self._fault else ""
        if waited >= self._start_seconds:
            raise DeviceError(
                f"no worker started within {limit}: the cluster may be busy{why}. Try fewer "
                "workers, a longer --start-seconds, or train on this machine with --backend local."
            )
        if waited < NO_WORKER_SECONDS:
            return self._waiting_since + min(NO_WORKER_SECONDS, self._start_seconds)
        if not self._is_wait_reported:
            self._is_wait_reported = True
            text = f"no worker for {NO_WORKER_SECONDS:.0f} s{why}: waiting for the cluster, {limit}"
            self.on_incident(Incident("waiting", f"{text} in all (--start-seconds)."))
        return self._waiting_since + self._start_seconds

    def _handle_start(self, worker: _Worker, ref: Any) -> None:
        try:
            worker.name = self._pool.get(ref)
        except DeviceError as error:
            self._give_up(worker, "refused", str(error))
        except WorkerLostError as error:
            failures = worker.failures + (error.cause != "node")
            if failures < MAX_STARTS:
                return self._start(worker.resources, failures)
            text = f"a worker died as it started, {failures} times: {error}."
            self._give_up(worker, error.cause, text)
        else:
            self._free.append(worker)
            self._is_wait_reported = False

    def _handle_answer(self, worker: _Worker, ref: Any) -> None:
        ticket = worker.ticket
        try:
            evaluation, is_usable = self._pool.get(ref)
        except (DeviceError, WorkerLostError) as error:
            cause = error.cause if isinstance(error, WorkerLostError) else "refused"
            why, trial = str(error).rstrip("."), ticket.trial
            text = f"a worker was lost ({cause}): {why}."
            self.on_incident(Incident(cause, text, worker.name, trial.key, trial.repeat))
            self._replace(worker)
            if cause == "node":
                return heapq.heappush(self._pending, ticket)
            reason: Reason = "out_of_memory" if cause == "memory" else "worker_lost"
            evaluation = self._failure(worker, reason, f"its worker was lost twice: {why}")
        else:
            if is_usable:
                self._free.append(worker)
            else:
                self._replace(worker)
        if evaluation.reason in RETRIED_AT_ONCE and not ticket.is_retry:
            ticket.is_retry = True
            return heapq.heappush(self._pending, ticket)
        return self._finished.append((ticket.trial, evaluation))

    def _give_up(self, worker: _Worker, kind: IncidentKind, text: str) -> None:
        """Start no more trials on a worker, and report it unless the same was reported before."""
        self._unfit.append(worker)
        if text != self._fault:
            self._fault = text
            self.on_incident(Incident(kind, text, worker.name))

    def _replace(self, worker: _Worker) -> None:
        self._pool.kill(worker.process)
        self._waiting_since = self._clock()
        self._start(worker.resources)

    def _failure(self, worker: _Worker, reason: Reason, text: str) -> Evaluation:
        trial, seconds = worker.ticket.trial, self._clock() - worker.since
        budget = self._budgets[trial.is_target]
        return Evaluation.failure(trial, budget, reason, text, worker.name, seconds)


@dataclass(slots=True, order=True)
class _Ticket:
    """A queued trial; tickets sort in the order in which they start."""

    is_retry: bool  # it was lost with a worker's process, or ran out of memory
    rank: tuple[float, int]  # negative work and number of the submission
    trial: Trial


@dataclass(slots=True, eq=False)
class _Worker:
    process: Any  # as ``pool.start`` returned it
    resources: Any
    failures: int  # failed starts before this one
    name: str = ""  # host name and process id, once the worker has started
    ticket: _Ticket = field(init=False)  # of the trial that it runs or ran last
    since: float = 0.0  # clock time at which the trial started
