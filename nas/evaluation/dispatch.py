"""Hand out jobs to workers, and watch over both: what happens when a worker hangs or is lost.

Jobs come in groups: mostly of one, or of several seeds that train together.

The rules are here, free of any library; a `Pool` is what carries them out (`ray_backend` has one).
A worker that hangs is ended. A lost one is replaced, and its candidate gets a second try, with a
worker to itself, before it is recorded as failed. Nothing here depends on which worker does what,
or on who finishes first.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from nas.errors import DeviceError
from nas.evaluation.guard import failed
from nas.evaluation.record import Evaluation, Job, Reason

START_SECONDS: Final = 300.0
"""How long the first worker may take to start: it imports torch, and a busy cluster has a queue."""

_MAX_FAILED_STARTS: Final = 3
_MAX_LOSSES: Final = 2
_PREFETCH_ROUNDS: Final = 2


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
    """Starts, feeds and ends workers. Answers are awaited by hashable references to them.

    Contract: a worker takes its groups in order, one at a time.
    """

    def start(self) -> tuple[Any, Any]:
        """Start a worker; give it and the reference to its name, which comes when it is ready."""
        ...

    def submit(self, worker: Any, jobs: tuple[Job, ...]) -> Any:
        """Queue a group at a worker; give the reference to its evaluations, one a job."""
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
    """Runs jobs on the workers of a pool.

    Args:
        pool: where the workers come from; they start at once.
        workers: how many.
        budget: the training budget in words, for the record of a failure.
        time_limit: seconds that one training may take; the training keeps it by itself.
        grace: seconds beyond it after which a worker that did not answer is ended.
    """

    def __init__(
        self, pool: Pool, *, workers: int, budget: str, time_limit: float | None, grace: float
    ) -> None:
        self._pool = pool
        self._slots = [_Slot() for _ in range(workers)]
        self._budget = budget
        self._patience = math.inf if time_limit is None else time_limit + grace
        self._pending: deque[_Ticket] = deque()
        self._failed_starts = 0
        self._fill_slots()

    def run(self, groups: Sequence[tuple[Job, ...]]) -> Iterator[tuple[Job, Evaluation]]:
        """Yield each job with its evaluation as it finishes; if abandoned, end what was begun.

        Raises:
            DeviceError: no worker starts, or none starts any more.
        """
        self._pending = deque(_Ticket(jobs) for jobs in groups)
        self._fill_slots()
        try:
            while self._pending or any(slot.queue for slot in self._slots):
                self._assign()
                for slot, has_answer in self._wait():
                    answers = self._attend(slot, has_answer)
                    self._assign()  # before the caller takes its time over the answers
                    yield from answers
        finally:
            for slot in self._slots:
                if slot.queue:
                    self._end(slot)

    def first_ready(self) -> Any:
        """A worker that is ready, once there is one; only while nothing is under way.

        Raises:
            DeviceError: no worker starts.
        """
        self._fill_slots()
        while not any(slot.is_ready for slot in self._slots):
            for slot, has_answer in self._wait():
                self._welcome(slot, has_answer)
        return next(slot.worker for slot in self._slots if slot.is_ready)

    def stop(self) -> None:
        """End all workers; the next run would start new ones."""
        for slot in self._slots:
            self._end(slot)

    def _assign(self) -> None:
        """Give each free worker a job, then each busy one its next, so that none waits for us.

        Not near the end: a job that queues behind a long one could have run elsewhere. And no
        candidate under suspicion shares a worker, see `_lose`.
        """
        ready = [slot for slot in self._slots if slot.is_ready]
        for slot in ready:
            if self._pending and not slot.queue:
                self._give(slot)
        for slot in ready:
            is_early = len(self._pending) > _PREFETCH_ROUNDS * len(self._slots)
            if is_early and len(slot.queue) == 1:
                is_suspect = slot.queue[0].losses or self._pending[0].losses
                if not is_suspect:
                    self._give(slot)

    def _give(self, slot: "_Slot") -> None:
        ticket = self._pending.popleft()
        ticket.ref = self._pool.submit(slot.worker, ticket.jobs)
        if not slot.queue:
            slot.since = time.monotonic()
        slot.queue.append(ticket)

    def _wait(self) -> list[tuple["_Slot", bool]]:
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

    def _deadline(self, slot: "_Slot") -> float:
        """When our patience with a worker that we wait for ends, monotonic clock, s."""
        if slot.is_ready:
            return slot.since + self._patience * max(1, len(slot.jobs))
        is_any_ready = any(other.is_ready for other in self._slots)
        return math.inf if is_any_ready else slot.since + START_SECONDS

    def _attend(self, slot: "_Slot", has_answer: bool) -> list[tuple[Job, Evaluation]]:
        if not slot.is_ready:
            self._welcome(slot, has_answer)
            return []
        if not has_answer:
            return self._give_up(slot)
        try:
            evaluations: list[Evaluation] = self._pool.get(slot.awaited)
        except WorkerLostError as error:
            return self._lose(slot, error)
        slot.since = time.monotonic()  # the next one in its queue has begun
        return list(zip(slot.queue.popleft().jobs, evaluations, strict=True))

    def _welcome(self, slot: "_Slot", has_answer: bool) -> None:
        """Take in a worker that has started, or find out why it did not."""
        if not has_answer:
            raise DeviceError(
                f"no worker started within {START_SECONDS:.0f} s: the cluster may be busy. "
                "Try fewer workers, or train on this machine with --backend local."
            )
        try:
            slot.name, slot.starting = self._pool.get(slot.starting), None
            self._failed_starts = 0
        except WorkerLostError as error:
            self._failed_starts += 1
            if self._failed_starts == _MAX_FAILED_STARTS:
                raise DeviceError(
                    f"{_MAX_FAILED_STARTS} workers in a row died as they started: {error}."
                ) from error
            self._replace(slot)

    def _give_up(self, slot: "_Slot") -> list[tuple[Job, Evaluation]]:
        """End a worker that hangs."""
        patience = self._patience * len(slot.jobs)
        text = f"no answer within {patience:g} s, so its worker was ended"
        failures = self._failures(slot, "time_limit", text)
        self._replace(slot)
        return failures

    def _lose(self, slot: "_Slot", error: WorkerLostError) -> list[tuple[Job, Evaluation]]:
        """Try again what a lost worker was training, once, then record it as failed.

        Who was to blame cannot be seen: the worker may have died of another's memory, or of the
        next group before this one's answer had left it, or several seeds at once were too much.
        So in the second try each job has a worker to itself.
        """
        failures = self._failures(slot, error.reason, f"its worker was lost, twice: {error}")
        ticket = self._replace(slot)[0]
        if ticket.losses + 1 == _MAX_LOSSES:
            return failures
        self._pending.extendleft(_Ticket((job,), ticket.losses + 1) for job in ticket.jobs[::-1])
        return []

    def _failures(self, slot: "_Slot", reason: Reason, text: str) -> list[tuple[Job, Evaluation]]:
        """The failure of all that a worker was training."""
        seconds, name = (time.monotonic() - slot.since) / len(slot.jobs), slot.name
        return [
            (job, failed(job, self._budget, reason, text, worker=name, wall_seconds=seconds))
            for job in slot.jobs
        ]

    def _fill_slots(self) -> None:
        for slot in self._slots:
            if slot.worker is None:
                slot.worker, slot.starting = self._pool.start()
                slot.since = time.monotonic()

    def _replace(self, slot: "_Slot") -> list["_Ticket"]:
        """Start a new worker in a slot; what only waited there is innocent and waits again."""
        tickets = self._end(slot)
        self._pending.extendleft(reversed(tickets[1:]))
        self._fill_slots()
        return tickets

    def _end(self, slot: "_Slot") -> list["_Ticket"]:
        """End a slot's worker; give what it was training, and what waited, in order."""
        if slot.worker is not None:
            self._pool.kill(slot.worker)
        tickets = list(slot.queue)
        slot.worker = slot.starting = None
        slot.queue.clear()
        return tickets


@dataclass(slots=True)
class _Ticket:
    """A group on its way through the workers."""

    jobs: tuple[Job, ...]
    losses: int = 0
    ref: Any = None


@dataclass(slots=True, eq=False)
class _Slot:
    """A worker's place: who sits there, what it trains and what waits behind that.

    Args:
        worker: None if there is none.
        starting: the reference to its name; None once it is ready.
        name: host and process id.
        since: when it began what it is doing now, as seen from here; monotonic clock, s.
        queue: what it was given, in order; it trains the first.
    """

    worker: Any = None
    starting: Any = None
    name: str = ""
    since: float = 0.0
    queue: deque[_Ticket] = field(default_factory=deque)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What it trains now."""
        return self.queue[0].jobs if self.queue else ()

    @property
    def is_ready(self) -> bool:
        return self.worker is not None and self.starting is None

    @property
    def awaited(self) -> Any:
        """The reference to what comes next from this worker; None if nothing does."""
        if self.starting is not None:
            return self.starting
        return self.queue[0].ref if self.queue else None
