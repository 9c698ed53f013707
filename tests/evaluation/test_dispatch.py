"""The rules of the dispatcher, on a pool whose clock and failures a test scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from nas.common.errors import DeviceError
from nas.evaluation import dispatch
from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.pool import Cause, WorkerLostError, WorkerRefusedError
from nas.evaluation.trial import Budget, Evaluation, Incident, Trial, run_trials
from tests.evaluation.conftest import MakeTrials, make_evaluation
from tests.evaluation.simulated import SimulatedPool
from tests.evaluation.simulated import make_dispatcher as simulated

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
    is_unfit: bool = False


@dataclass
class ScriptedPool:
    """A pool whose awaited workers have always finished; the test moves its clock.

    Args:
        hog: key of a trial that ends all busy workers.
        unlucky: causes of losses by key.
        faulty, deadly, hungry: how often the trial of a key meets an error, ends its worker, or
            runs out of memory.
        unfit: so many first workers are refused, as the last machine if `is_barren`.
        bad_starts: so many workers die as they start.
        is_silent: busy workers never answer; with `has_no_room` none starts either.
    """

    hog: str = ""
    unlucky: dict[str, list[Cause]] = field(default_factory=dict)
    faulty: dict[str, int] = field(default_factory=dict)
    unfit: int = 0
    is_barren: bool = False
    now: float = 0.0
    awaited: list[Ref] = field(default_factory=list)
    deadly: dict[str, int] = field(default_factory=dict)
    hungry: dict[str, int] = field(default_factory=dict)
    bad_starts: int = 0
    is_silent: bool = False
    has_no_room: bool = False
    workers: list[ScriptedWorker] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)

    def start(self) -> tuple[Any, Any]:
        worker = ScriptedWorker(is_unfit=len(self.workers) < self.unfit)
        self.workers.append(worker)
        return worker, self._expect(worker, None, "start")

    def submit(self, worker: ScriptedWorker, trial: Trial | None) -> Ref:
        assert not worker.is_dead
        assert not worker.is_busy
        worker.is_busy = True
        self.submitted.append(trial.key if trial else "speed")
        return self._expect(worker, trial, self.submitted[-1])

    def _expect(self, worker: ScriptedWorker, trial: Trial | None, key: str) -> Ref:
        self.awaited.append(Ref(worker, trial, key))
        return self.awaited[-1]

    def wait(self, timeout: float | None) -> Iterable[Ref]:
        refs = [ref for ref in self.awaited if not (self.is_silent and ref.key != "start")]
        refs = [] if self.is_silent and self.has_no_room else refs
        if not refs:
            assert timeout is not None, "the dispatcher waits without end"
            self.now += timeout
        self.awaited = [ref for ref in self.awaited if ref not in refs]
        if self.hog in {ref.key for ref in refs}:
            self.deadly |= {ref.key: 1 for ref in refs if ref.trial}
        return refs

    def get(self, ref: Ref) -> Any:
        ref.worker.is_busy = False
        key = ref.key
        if ref.worker.is_unfit:
            raise WorkerRefusedError("the machine m cannot train: no GPU.", is_last=self.is_barren)
        if key == "start":
            self.bad_starts -= 1
            if self.bad_starts >= 0:
                raise WorkerLostError("process", "exit code 1")
            return "host:1"
        if self.unlucky.get(key):
            raise WorkerLostError(self.unlucky[key].pop(), "gone")
        if self.deadly.get(key, 0) > 0:
            self.deadly[key] -= 1
            raise WorkerLostError("memory" if key == "big" else "process", "gone")
        if ref.trial is None:
            return {"unit": 1.0}
        for script, reason in (self.hungry, "out_of_memory"), (self.faulty, "error"):
            script[key] = script.get(key, 0) - 1
            if script[key] >= 0:
                return Evaluation.failure(ref.trial, BUDGET, reason, "a\nb", "", 0.0)
        return Evaluation.failure(ref.trial, BUDGET, "diverged", "done", "", 0.0)

    def kill(self, worker: ScriptedWorker) -> None:
        worker.is_dead = True


def make_dispatcher(
    pool: ScriptedPool, workers: int = 2, patience: float = math.inf, start: float = 300.0
) -> Dispatcher:
    options = {"patience": patience, "start_seconds": start, "clock": lambda: pool.now}
    return Dispatcher(pool, workers, BUDGET, **options)  # type: ignore[arg-type]


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
    assert reasons(run(dispatcher, trials_named(*KEYS))) == dict.fromkeys(KEYS, "diverged")
    assert len(pool.workers) == workers
    assert len(pool.submitted) == len(KEYS)
    assert dispatcher.wait() == []


def test_trials_with_most_work_start_first(trials_named):
    pool = ScriptedPool()
    works = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0, "e": 0.0}
    trials = [replace(trial, work=works[trial.key]) for trial in trials_named(*works)]
    run(make_dispatcher(pool, workers=1), trials)
    assert pool.submitted == ["b", "d", "c", "a", "e"]


def test_next_trial_starts_before_answers_are_returned(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1)
    dispatcher.submit(trials_named("a", "b"))
    assert [trial.key for trial, _ in dispatcher.wait()] == ["a"]
    assert pool.submitted == ["a", "b"]
    assert set(run(dispatcher, trials_named("x", "y"))) == {"b", "x", "y"}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("guilty", ["a", "e", "big", "t"])
def test_only_the_trial_that_ends_workers_is_recorded_as_lost(workers, guilty, trials_named):
    keys = (*KEYS[:7], "big", *KEYS[7:])
    pool = ScriptedPool(deadly={guilty: 99})
    found = run(make_dispatcher(pool, workers), trials_named(*keys))
    assert set(found) == set(keys)
    lost = {key: reason for key, reason in reasons(found).items() if reason != "diverged"}
    assert lost == {guilty: "out_of_memory" if guilty == "big" else "worker_lost"}
    assert pool.submitted.count(guilty) == 3
    assert found[guilty].error == "its worker was lost, 3 times: gone"


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_neighbours_of_a_trial_that_ends_all_workers_are_trained(
    workers: int, trials_named: MakeTrials
):

    found = reasons(run(make_dispatcher(ScriptedPool("e"), workers), trials_named(*KEYS)))
    assert found == {key: "worker_lost" if key == "e" else "diverged" for key in KEYS}


def test_a_trial_that_loses_two_workers_is_trained(trials_named):

    pool = ScriptedPool(deadly={"c": 1, "k": 2})
    found = reasons(run(make_dispatcher(pool), trials_named(*KEYS)))
    assert set(found.values()) == {"diverged"}
    assert len(pool.workers) == 5


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_out_of_memory_is_tried_again_alone(workers, trials_named):

    pool = ScriptedPool(hungry={"c": 1, "k": 2})
    found = reasons(run(make_dispatcher(pool, workers), trials_named(*KEYS)))
    short = {key for key, reason in found.items() if reason == "out_of_memory"}
    assert short == ({"c", "k"} if workers == 1 else {"k"})
    if workers > 1:
        assert [pool.submitted.count(key) for key in "ckt"] == [2, 2, 1]
        assert sorted(pool.submitted[-2:]) == ["c", "k"]
    assert len(pool.workers) == workers


def test_the_first_ready_worker_calibrates(trials_named):
    dispatcher = make_dispatcher(ScriptedPool(bad_starts=2))
    assert dispatcher.calibrate() == {"unit": 1.0}
    assert set(run(dispatcher, trials_named("a", "b"))) == {"a", "b"}


def test_close_ends_all_workers_and_trials(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool)
    dispatcher.submit(trials_named(*KEYS))
    dispatcher.wait()
    dispatcher.close()
    dispatcher.close()
    assert all(worker.is_dead for worker in pool.workers)
    assert dispatcher.wait() == []


def test_a_worker_lost_in_calibration_is_replaced():
    pool = ScriptedPool(deadly={"speed": 2})
    assert make_dispatcher(pool, workers=1).calibrate() == {"unit": 1.0}
    assert [worker.is_dead for worker in pool.workers] == [True, True, False]


def test_workers_that_hang_in_calibration_are_a_device_error():

    pool = ScriptedPool(is_silent=True)
    with pytest.raises(DeviceError, match=r"measure its speed: .* 3 times: no answer within 120 s"):
        make_dispatcher(pool, workers=1).calibrate()
    assert pool.now == 3 * dispatch.CALIBRATION_SECONDS


def test_three_failed_starts_are_a_device_error(trials_named):
    dispatcher = make_dispatcher(ScriptedPool(bad_starts=3), workers=1)
    with pytest.raises(DeviceError, match="workers died as they started, 3 in a row: exit code 1"):
        run(dispatcher, trials_named("a"))


def test_a_cluster_that_worked_before_has_start_seconds_to_recover(trials_named):

    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1)
    run(dispatcher, trials_named("a"))
    pool.deadly, pool.bad_starts = {"b": 1}, 5
    assert set(run(dispatcher, trials_named("b"))) == {"b"}
    pool.deadly, pool.bad_starts = {"d": 1}, 400
    with pytest.raises(DeviceError, match=r"within 300 s.* died as it started: exit code 1"):
        run(dispatcher, trials_named("d"))
    assert pool.now >= 300


def test_a_worker_that_always_dies_as_it_starts_is_reported_once_with_back_off(trials_named):

    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1)
    incidents = listen(dispatcher)
    run(dispatcher, trials_named("a"))
    pool.deadly, pool.bad_starts = {"d": 1}, 400
    with pytest.raises(DeviceError, match="died as it started"):
        run(dispatcher, trials_named("d"))
    assert len(pool.workers) < 20
    assert sum("died as it started, and is tried again" in i.text for i in incidents) == 1


def test_answers_are_returned_before_a_device_error_is_raised(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool)
    answer = pool.get

    def get(ref: Ref) -> Any:
        if ref.key == "b":
            raise DeviceError("all is broken.")
        return answer(ref)

    pool.get = get  # type: ignore[method-assign]
    dispatcher.submit(trials_named("a", "b"))
    assert [trial.key for trial, _ in dispatcher.wait()] == ["a"]
    with pytest.raises(DeviceError, match="all is broken"):
        dispatcher.wait()


def test_no_worker_within_start_seconds_is_a_device_error(trials_named):
    dispatcher = make_dispatcher(ScriptedPool(is_silent=True, has_no_room=True), start=200.0)
    with pytest.raises(DeviceError, match="no worker started within 200 s"):
        run(dispatcher, trials_named("a"))


def test_losing_all_machines_is_reported_and_waited_for(trials_named):

    pool = ScriptedPool(unlucky={key: ["node"] for key in KEYS})
    dispatcher = make_dispatcher(pool, workers=3)
    incidents = listen(dispatcher)
    start_worker, starts = pool.start, []

    def start() -> tuple[Any, Any]:
        worker, ref = start_worker()
        pool.awaited.remove(ref)  # there is no room
        starts.append(ref)
        return worker, ref

    def wait(timeout: float | None) -> Iterable[Ref]:
        if len(starts) == 3 and pool.now >= 100.0:
            pool.start = start_worker  # type: ignore[method-assign]
            pool.awaited += starts[:1]  # one machine is back
            starts.clear()
        if not pool.awaited:
            pool.now += min(timeout or 10.0, 10.0)
        return wait_for(timeout) if pool.awaited else []

    wait_for, pool.start, pool.wait = pool.wait, start, wait  # type: ignore[method-assign]
    assert set(reasons(run(dispatcher, trials_named(*KEYS))).values()) == {"diverged"}
    assert [i.text for i in incidents if i.kind in ("waiting", "back")] == [
        "no worker for 30 s: waiting for the cluster, 300 s in all (--start-seconds).",
        "there are workers again.",
    ]


def listen(dispatcher: Dispatcher) -> list[Incident]:
    incidents: list[Incident] = []
    dispatcher.on_incident = incidents.append
    return incidents


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("cause", ["node", "preempted", "gpu_unusable"])
def test_a_lost_machine_never_counts_against_the_trial(workers, cause, trials_named):

    pool = ScriptedPool(unlucky={"c": [cause] * 10})
    dispatcher = make_dispatcher(pool, workers)
    incidents = listen(dispatcher)
    found = run(dispatcher, trials_named(*KEYS))
    assert set(reasons(found).values()) == {"diverged"}
    assert pool.submitted.count("c") == 11
    assert [(i.kind, i.key, i.repeat, i.worker) for i in incidents] == [
        (cause, "c", 0, "host:1")
    ] * 10
    assert incidents[0].text == f"a worker was lost ({cause}): gone."
    if workers > 1:  # and not alone
        assert pool.submitted[-1] != "c"


def test_an_error_is_tried_again_in_another_process(trials_named):

    pool = ScriptedPool(faulty={"c": 1, "k": 2})
    dispatcher = make_dispatcher(pool, 2)
    incidents = listen(dispatcher)
    found = run(dispatcher, trials_named(*KEYS))
    assert {key for key, e in found.items() if e.reason == "error"} == {"k"}
    assert [pool.submitted.count(key) for key in "ckt"] == [2, 2, 1]
    assert len(pool.workers) == 4
    assert [(i.kind, i.key, i.text) for i in incidents] == [
        ("error", key, "tried again in another worker: b") for key in "ck"
    ]


def test_trials_of_a_refused_worker_go_to_others(trials_named):
    pool = ScriptedPool(unfit=2)
    dispatcher = make_dispatcher(pool, 4)
    incidents = listen(dispatcher)
    assert set(run(dispatcher, trials_named(*KEYS))) == set(KEYS)
    assert [(i.kind, i.text) for i in incidents] == [
        ("refused", "the machine m cannot train: no GPU.")  # once a machine
    ]


def test_if_all_machines_are_refused_it_is_a_device_error(trials_named):
    dispatcher = make_dispatcher(ScriptedPool(unfit=9, is_barren=True), 4)
    with pytest.raises(DeviceError, match=r"^the machine m cannot train: no GPU\.$"):
        run(dispatcher, trials_named("a"))


def test_a_hanging_worker_costs_its_trial_alone(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1, patience=10.0)
    dispatcher.submit(trials_named(*KEYS))
    assert dispatcher.wait()[0][1].reason == "diverged"
    pool.is_silent = True
    ((trial, evaluation),) = dispatcher.wait()
    assert (trial.key, evaluation.reason) == ("b", "time_limit")
    pool.is_silent = False
    assert set(reasons(run(dispatcher, [])).values()) == {"diverged"}


def test_a_thousand_unreliable_workers_lose_no_trial_and_are_busy(trials_named):
    """`python -m benchmarks dispatch` measures the driver's time."""
    trials = [replace(t, work=5.0 + t.seed % 7) for t in trials_named(*map(str, range(8000)))]
    answer = make_evaluation()
    pool = SimulatedPool(lambda _: answer, is_lost=lambda begun: begun % 50 == 1)
    dispatcher = simulated(pool, 1000)
    incidents = listen(dispatcher)
    keys = [trial.key for trial, _ in run_trials(dispatcher, trials)]
    assert len(keys) == len(set(keys)) == len(trials)
    assert len(incidents) == len([n for n in range(len(trials) + len(incidents)) if n % 50 == 1])
    assert {incident.kind for incident in incidents} == {"node"}
    assert pool.busy == sum(trial.work for trial in trials)
    assert pool.busy / (1000 * (pool.now - pool.start_seconds)) > 0.8
