"""The rules by which trials meet workers, on a pool whose clock and accidents a test decides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from nas.errors import DeviceError, RunError
from nas.evaluation import dispatch
from nas.evaluation.dispatch import Dispatcher, WorkerLostError
from nas.evaluation.trial import Budget, Evaluation, Reason, Trial, run_trials
from tests.evaluation.conftest import MakeTrials

BUDGET = Budget(1, 1, "float32")


@dataclass(eq=False)
class Ref:
    worker: ScriptedWorker
    trial: Trial | None
    key: str


@dataclass(eq=False)
class ScriptedWorker:
    is_busy: bool = False
    is_dead: bool = False


@dataclass
class ScriptedPool:
    """A pool in which a worker that is waited for has always finished.

    Each key in `deadly` says how many times its trial takes the worker with it, in `hungry` how
    many times it runs out of memory; the one named `hog` takes all that are at work with it.
    """

    hog: str = ""
    deadly: dict[str, int] = field(default_factory=dict)
    hungry: dict[str, int] = field(default_factory=dict)
    bad_starts: int = 0
    is_silent: bool = False
    workers: list[ScriptedWorker] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)

    def start(self) -> tuple[Any, Any]:
        worker = ScriptedWorker()
        self.workers.append(worker)
        return worker, Ref(worker, None, "start")

    def submit(self, worker: ScriptedWorker, trial: Trial | None) -> Ref:
        assert not worker.is_dead
        assert not worker.is_busy
        worker.is_busy = True
        self.submitted.append(trial.key if trial else "speed")
        return Ref(worker, trial, self.submitted[-1])

    def wait(self, refs: Sequence[Ref], timeout: float | None) -> Iterable[Ref]:
        assert refs
        if self.hog in {ref.key for ref in refs}:
            self.deadly |= {ref.key: 1 for ref in refs if ref.trial}
        return [] if self.is_silent else refs

    def get(self, ref: Ref) -> Any:
        ref.worker.is_busy = False
        if ref.key == "start":
            self.bad_starts -= 1
            if self.bad_starts >= 0:
                raise WorkerLostError("worker_lost", "exit code 1")
            return "host:1"
        key = ref.key
        if self.deadly.get(key, 0) > 0:
            self.deadly[key] -= 1
            raise WorkerLostError("out_of_memory" if key == "big" else "worker_lost", "gone")
        if ref.trial is None:
            return {"unit": 1.0}
        self.hungry[key] = self.hungry.get(key, 0) - 1
        reason: Reason = "out_of_memory" if self.hungry[key] >= 0 else "error"
        return Evaluation.failure(ref.trial, BUDGET, reason, "done", "", 0.0)

    def kill(self, worker: ScriptedWorker) -> None:
        worker.is_dead = True


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_SECONDS", 0.0)


def make_dispatcher(
    pool: ScriptedPool, workers: int = 2, patience: float = math.inf, start: float = 300.0
) -> Dispatcher:
    return Dispatcher(pool, workers, lambda _: BUDGET, patience=patience, start_seconds=start)


def run(dispatcher: Dispatcher, trials: Sequence[Trial]) -> dict[str, Evaluation]:
    found: dict[str, Evaluation] = {}
    for trial, evaluation in run_trials(dispatcher, trials):
        assert trial.key not in found
        found[trial.key] = evaluation
    return found


def reasons(found: dict[str, Evaluation]) -> dict[str, str | None]:
    return {key: evaluation.reason for key, evaluation in found.items()}


KEYS = tuple("abcdefghijklmnopqrst")


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
def test_every_trial_is_answered_once(workers, trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers)
    assert reasons(run(dispatcher, trials_named(*KEYS))) == dict.fromkeys(KEYS, "error")
    assert len(pool.workers) == workers
    assert len(pool.submitted) == len(KEYS)
    assert dispatcher.wait() == []


def test_most_work_begins_first_and_equals_keep_their_order(trials_named):
    pool = ScriptedPool()
    works = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0, "e": 0.0}
    trials = [replace(trial, work=works[trial.key]) for trial in trials_named(*works)]
    run(make_dispatcher(pool, workers=1), trials)
    assert pool.submitted == ["b", "d", "c", "a", "e"]


def test_trials_can_be_added_and_begin_before_the_caller_has_the_answers(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1)
    dispatcher.submit(trials_named("a", "b"))
    assert [trial.key for trial, _ in dispatcher.wait()] == ["a"]
    assert pool.submitted == ["a", "b"]
    assert set(run(dispatcher, trials_named("x", "y"))) == {"b", "x", "y"}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("guilty", ["a", "e", "big", "t"])
def test_only_the_guilty_one_is_recorded_as_lost(workers, guilty, trials_named):
    keys = (*KEYS[:7], "big", *KEYS[7:])
    pool = ScriptedPool(deadly={guilty: 99})
    found = run(make_dispatcher(pool, workers), trials_named(*keys))
    assert set(found) == set(keys)
    lost = {key: reason for key, reason in reasons(found).items() if reason != "error"}
    assert lost == {guilty: "out_of_memory" if guilty == "big" else "worker_lost"}
    assert pool.submitted.count(guilty) == 3
    assert found[guilty].error == "its worker was lost, 3 times: gone"


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_a_trial_that_takes_its_neighbours_along_is_alone_to_blame(
    workers: int, trials_named: MakeTrials
):
    """It ran with the same neighbours again, and all of them were recorded as lost."""
    found = reasons(run(make_dispatcher(ScriptedPool("e"), workers), trials_named(*KEYS)))
    assert found == {key: "worker_lost" if key == "e" else "error" for key in KEYS}


def test_worker_lost_twice_costs_no_candidate(trials_named):
    """It did: two losses, as when a machine's memory runs short, were a failure for ever."""
    pool = ScriptedPool(deadly={"c": 1, "k": 2})
    found = reasons(run(make_dispatcher(pool), trials_named(*KEYS)))
    assert set(found.values()) == {"error"}
    assert len(pool.workers) == 5


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_ran_out_of_memory_is_tried_again_alone(workers, trials_named):
    """It was recorded at once, although its neighbours may have held the memory."""
    pool = ScriptedPool(hungry={"c": 1, "k": 2})
    found = reasons(run(make_dispatcher(pool, workers), trials_named(*KEYS)))
    short = {key for key, reason in found.items() if reason == "out_of_memory"}
    assert short == ({"c", "k"} if workers == 1 else {"k"})
    if workers > 1:
        assert [pool.submitted.count(key) for key in "ckt"] == [2, 2, 1]
        assert sorted(pool.submitted[-2:]) == ["c", "k"]
    assert len(pool.workers) == workers


def test_the_first_worker_that_is_ready_measures_its_speed(trials_named):
    dispatcher = make_dispatcher(ScriptedPool(bad_starts=2))
    assert dispatcher.calibrate() == {"unit": 1.0}
    assert set(run(dispatcher, trials_named("a", "b"))) == {"a", "b"}


def test_close_ends_what_was_begun_and_is_the_end(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool)
    dispatcher.submit(trials_named(*KEYS))
    dispatcher.wait()
    dispatcher.close()
    dispatcher.close()
    assert all(worker.is_dead for worker in pool.workers)
    assert dispatcher.wait() == []
    for use in (dispatcher.calibrate, lambda: dispatcher.submit(trials_named("z"))):
        with pytest.raises(RunError, match="was closed"):
            use()


def test_a_worker_that_is_lost_as_it_measures_is_replaced():
    pool = ScriptedPool(deadly={"speed": 2})
    assert make_dispatcher(pool, workers=1).calibrate() == {"unit": 1.0}
    assert [worker.is_dead for worker in pool.workers] == [True, True, False]


def test_workers_that_are_silent_as_they_measure_are_one_sentence(monkeypatch):
    """A stopped one hung the driver for ever."""
    monkeypatch.setattr(dispatch, "CALIBRATION_SECONDS", 0.0)
    pool = ScriptedPool()
    own_wait = pool.wait

    def wait(refs: Sequence[Ref], timeout: float | None) -> Iterable[Ref]:
        return [ref for ref in own_wait(refs, timeout) if ref.key == "start"]

    pool.wait = wait  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match=r"measure its speed: .* 3 times: no answer within 0 s"):
        make_dispatcher(pool, workers=1).calibrate()


def test_start_that_fails_three_times_is_one_sentence(trials_named):
    dispatcher = make_dispatcher(ScriptedPool(bad_starts=3), workers=1)
    with pytest.raises(DeviceError, match="workers died as they started, 3 in a row: exit code 1"):
        run(dispatcher, trials_named("a"))


def test_a_cluster_that_worked_before_is_given_time_to_come_back(trials_named):
    """Losing all nodes at once ended a search after three quick failures."""
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1)
    run(dispatcher, trials_named("a"))
    pool.deadly, pool.bad_starts = {"b": 1}, 20
    assert set(run(dispatcher, trials_named("b"))) == {"b"}
    gone = make_dispatcher(pool, workers=1, start=0.0)
    run(gone, trials_named("c"))
    pool.deadly, pool.bad_starts = {"d": 1}, 20
    with pytest.raises(DeviceError, match="workers died as they started, 1 in a row"):
        run(gone, trials_named("d"))


def test_start_that_takes_forever_is_one_sentence(trials_named):
    dispatcher = make_dispatcher(ScriptedPool(is_silent=True), start=0.0)
    with pytest.raises(DeviceError, match="no worker started within 0 s"):
        run(dispatcher, trials_named("a"))


def test_hang_costs_only_the_candidate_that_hangs(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1, patience=0.0)
    dispatcher.submit(trials_named(*KEYS))
    assert dispatcher.wait()[0][1].reason == "error"
    pool.is_silent = True  # from here on the worker says nothing
    ((trial, evaluation),) = dispatcher.wait()
    assert (trial.key, evaluation.reason) == ("b", "time_limit")
    pool.is_silent = False
    assert set(reasons(run(dispatcher, [])).values()) == {"error"}
