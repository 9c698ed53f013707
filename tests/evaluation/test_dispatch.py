"""The rules by which jobs meet workers, on a pool whose clock and accidents a test decides."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from nas.errors import DeviceError
from nas.evaluation import dispatch
from nas.evaluation.dispatch import Dispatcher, WorkerLostError
from nas.evaluation.guard import failed
from nas.evaluation.record import Evaluation, Job
from nas.mechanisms import mechanism


@dataclass(eq=False)
class Ref:
    worker: "ScriptedWorker"
    job: Job | None
    others: tuple[Job, ...] = ()


@dataclass(eq=False)
class ScriptedWorker:
    queue: deque[Ref] = field(default_factory=deque)
    is_dead: bool = False


@dataclass
class ScriptedPool:
    """A pool in which a worker that is waited for has always finished its first job.

    Each key in `deadly` says how many times its job takes the worker with it. A worker that dies
    of a job takes the answer of the job before along: the worst that can happen.
    """

    deadly: dict[str, int] = field(default_factory=dict)
    bad_starts: int = 0
    never_starts: bool = False
    workers: list[ScriptedWorker] = field(default_factory=list)
    submitted: list[tuple[ScriptedWorker, str]] = field(default_factory=list)
    most_queued: int = 0

    def start(self) -> tuple[Any, Any]:
        worker = ScriptedWorker()
        self.workers.append(worker)
        return worker, Ref(worker, None)

    def submit(self, worker: ScriptedWorker, jobs: tuple[Job, ...]) -> Ref:
        assert not worker.is_dead
        (job, *others) = jobs
        ref = Ref(worker, job, tuple(others))
        worker.queue.append(ref)
        self.submitted.append((worker, job.key))
        self.most_queued = max(self.most_queued, len(worker.queue))
        return ref

    def wait(self, refs: Sequence[Ref], timeout: float | None) -> Iterable[Ref]:
        assert refs
        return [] if self.never_starts else refs

    def get(self, ref: Ref) -> Any:
        if ref.job is None:
            self.bad_starts -= 1
            if self.bad_starts >= 0:
                raise WorkerLostError("worker_lost", "exit code 1")
            return "host:1"
        worker = ref.worker
        assert worker.queue[0] is ref
        near = [queued.job.key for queued in list(worker.queue)[:2] if queued.job]
        guilty = next((key for key in near if self.deadly.get(key, 0) > 0), None)
        if guilty is not None:
            self.deadly[guilty] -= 1
            raise WorkerLostError("out_of_memory" if guilty == "big" else "worker_lost", "gone")
        worker.queue.popleft()
        return [
            failed(job, "", "error", "done", worker="", wall_seconds=0.0)
            for job in (ref.job, *ref.others)
        ]

    def kill(self, worker: ScriptedWorker) -> None:
        worker.is_dead = True


def jobs_named(*keys: str) -> list[tuple[Job, ...]]:
    """Groups of one."""
    genome = mechanism("mha").genome
    return [(Job(key, genome, seed),) for seed, key in enumerate(keys)]


def make_dispatcher(
    pool: ScriptedPool, workers: int = 2, time_limit: float | None = None
) -> Dispatcher:
    return Dispatcher(pool, workers=workers, budget="", time_limit=time_limit, grace=0.0)


def reasons(answers: Iterable[tuple[Job, Evaluation]]) -> dict[str, str | None]:
    found = [(job.key, evaluation.reason) for job, evaluation in answers]
    assert len(dict(found)) == len(found)
    return dict(found)


KEYS = tuple("abcdefghijklmnopqrst")


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
def test_every_job_is_answered_once(workers: int) -> None:
    pool = ScriptedPool()
    found = reasons(make_dispatcher(pool, workers).run(jobs_named(*KEYS)))
    assert found == dict.fromkeys(KEYS, "error")
    assert len(pool.workers) == workers
    assert len(pool.submitted) == len(KEYS)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("guilty", ["a", "e", "big", "t"])
def test_only_the_guilty_one_is_recorded_as_lost(workers: int, guilty: str) -> None:
    keys = (*KEYS[:7], "big", *KEYS[7:])
    pool = ScriptedPool(deadly={guilty: 99})
    found = reasons(make_dispatcher(pool, workers).run(jobs_named(*keys)))
    assert set(found) == set(keys)
    lost = {key: reason for key, reason in found.items() if reason != "error"}
    assert lost == {guilty: "out_of_memory" if guilty == "big" else "worker_lost"}


def test_worker_lost_once_costs_no_candidate() -> None:
    pool = ScriptedPool(deadly={"c": 1, "k": 1})
    found = reasons(make_dispatcher(pool).run(jobs_named(*KEYS)))
    assert set(found.values()) == {"error"}
    assert len(pool.workers) == 4


def test_busy_workers_have_one_job_waiting_but_not_near_the_end() -> None:
    pool = ScriptedPool()
    answers = make_dispatcher(pool, workers=2).run(jobs_named(*KEYS))
    next(answers)
    assert pool.most_queued == 2
    pool = ScriptedPool()
    list(make_dispatcher(pool, workers=2).run(jobs_named("a", "b", "c", "d")))
    assert pool.most_queued == 1


def test_worker_has_its_next_job_before_the_caller_has_the_answer() -> None:
    pool = ScriptedPool()
    answers = make_dispatcher(pool, workers=1).run(jobs_named("a", "b"))
    next(answers)
    assert [key for _, key in pool.submitted] == ["a", "b"]


def test_abandoned_run_ends_what_was_begun_and_the_next_run_starts_anew() -> None:
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=2)
    answers = dispatcher.run(jobs_named(*KEYS))
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert all(worker.is_dead for worker in pool.workers)
    assert set(reasons(dispatcher.run(jobs_named("z")))) == {"z"}
    dispatcher.stop()
    assert all(worker.is_dead for worker in pool.workers)


def test_start_that_fails_twice_is_tried_again() -> None:
    pool = ScriptedPool(bad_starts=2)
    assert set(reasons(make_dispatcher(pool, workers=1).run(jobs_named("a")))) == {"a"}


def test_seeds_that_train_together_are_answered_each_by_itself() -> None:
    pool = ScriptedPool()
    (a,), (b,), (c,) = jobs_named("a", "b", "c")
    assert reasons(make_dispatcher(pool).run([(a, b), (c,)])) == dict.fromkeys("abc", "error")
    assert len(pool.submitted) == 2


def test_seeds_whose_worker_is_lost_are_tried_again_one_by_one() -> None:
    pool = ScriptedPool({"a": 1})
    (a,), (b,), (c,) = jobs_named("a", "b", "c")
    assert reasons(make_dispatcher(pool, 1).run([(a, b, c)])) == dict.fromkeys("abc", "error")
    assert [key for _, key in pool.submitted] == ["a", "a", "b", "c"]
    pool = ScriptedPool({"a": 2})
    found = reasons(make_dispatcher(pool, 1).run([(a, b, c)]))
    assert found == {"a": "worker_lost", "b": "error", "c": "error"}


def test_the_first_worker_that_is_ready_can_be_asked() -> None:
    pool = ScriptedPool(bad_starts=2)
    dispatcher = make_dispatcher(pool)
    worker = dispatcher.first_ready()
    assert worker in pool.workers
    assert not worker.is_dead
    assert dispatcher.first_ready() is worker
    assert reasons(dispatcher.run(jobs_named("a", "b"))) == {"a": "error", "b": "error"}


def test_start_that_fails_three_times_is_one_sentence() -> None:
    dispatcher = make_dispatcher(ScriptedPool(bad_starts=3), workers=1)
    with pytest.raises(DeviceError, match="3 workers in a row died as they started: exit code 1"):
        list(dispatcher.run(jobs_named("a")))


def test_start_that_takes_forever_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "START_SECONDS", 0.0)
    dispatcher = make_dispatcher(ScriptedPool(never_starts=True))
    with pytest.raises(DeviceError, match="no worker started within 0 s"):
        list(dispatcher.run(jobs_named("a")))


def test_hang_costs_only_the_candidate_that_hangs() -> None:
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1, time_limit=0.0)
    answers = dispatcher.run(jobs_named(*KEYS))
    assert next(answers)[1].reason == "error"
    pool.never_starts = True  # from here on the worker says nothing
    job, evaluation = next(answers)
    assert (job.key, evaluation.reason) == ("b", "time_limit")
    pool.never_starts = False
    assert set(reasons(answers).values()) == {"error"}
