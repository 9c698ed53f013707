"""The rules of the dispatcher, on a pool whose clock and failures a test scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest

from nas.common.errors import DeviceError
from nas.evaluation.dispatch import Dispatcher
from nas.evaluation.pool import Cause, WorkerLostError, WorkerRefusedError
from nas.evaluation.trial import Budget, Evaluation, Incident, Trial, run_trials
from tests.evaluation.conftest import make_evaluation
from tests.evaluation.simulated import SimulatedPool
from tests.evaluation.simulated import make_dispatcher as simulated

BUDGET = Budget(1, 1, "float32")
KEYS = tuple("abcdefghijklmnopqrst")


@dataclass(eq=False)
class Worker:
    is_busy: bool = False
    is_dead: bool = False


@dataclass(eq=False)
class Ref:
    worker: Worker
    trial: Trial | None
    key: str


@dataclass
class ScriptedPool:
    """A pool whose workers answer at once; a test scripts their failures and moves its clock.

    Attributes:
        script: by the key of a trial, "start" or "calibration": the failures of its first attempts.
            A failure is a cause of a loss, a reason of an evaluation, "refused", or "refused last".
        hog: key of a trial that ends all busy workers.
        is_silent: whether busy workers never answer; with `has_no_room` no worker starts either.
    """

    script: dict[str, list[str]] = field(default_factory=dict)
    hog: str = ""
    is_silent: bool = False
    has_no_room: bool = False
    now: float = 0.0
    awaited: list[Ref] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)

    def start(self) -> tuple[Worker, Ref]:
        self.workers.append(Worker())
        return self.workers[-1], self._expect(self.workers[-1], None, "start")

    def submit(self, worker: Worker, trial: Trial | None, *, is_alone: bool = False) -> Ref:
        assert not worker.is_dead
        assert not worker.is_busy
        worker.is_busy = True
        self.submitted.append(trial.key if trial else "calibration")
        self.alone += [self.submitted[-1]] if is_alone else []
        return self._expect(worker, trial, self.submitted[-1])

    def _expect(self, worker: Worker, trial: Trial | None, key: str) -> Ref:
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
            self.script |= {ref.key: ["process"] for ref in refs if ref.trial}
        return refs

    def get(self, ref: Ref) -> Any:
        ref.worker.is_busy = False
        failures = self.script.get(ref.key)
        failure: Any = failures.pop(0) if failures else ""
        if failure.startswith("refused"):
            is_last = failure == "refused last"
            raise WorkerRefusedError("the machine m cannot train: no GPU.", is_last=is_last)
        if failure in get_args(Cause):
            raise WorkerLostError(failure, "gone")
        if ref.key == "start":
            return "host:1"
        if ref.trial is None:
            return {"unit": 1.0}
        return Evaluation.failure(ref.trial, BUDGET, failure or "diverged", "a\nb", "", 0.0)

    def kill(self, worker: Worker) -> None:
        worker.is_dead = True


def make_dispatcher(
    pool: ScriptedPool, workers: int = 2, patience: float = math.inf, start: float = 300.0
) -> Dispatcher:
    options: dict[str, Any] = {"patience": patience, "start_seconds": start}
    return Dispatcher(pool, workers, (BUDGET, BUDGET), clock=lambda: pool.now, **options)


def run(dispatcher: Dispatcher, trials: Sequence[Trial]) -> dict[str, Evaluation]:
    answers = [(trial.key, evaluation) for trial, evaluation in run_trials(dispatcher, trials)]
    assert len(answers) == len(dict(answers))
    return dict(answers)


def reasons(answers: dict[str, Evaluation]) -> dict[str, str | None]:
    """The reasons of all evaluations that are not the pool's usual "diverged"."""
    found = {key: evaluation.reason for key, evaluation in answers.items()}
    return {key: reason for key, reason in found.items() if reason != "diverged"}


def listen(dispatcher: Dispatcher) -> list[Incident]:
    incidents: list[Incident] = []
    dispatcher.on_incident = incidents.append
    return incidents


@pytest.mark.parametrize("workers", [1, 50])
def test_every_trial_is_answered_once(workers, trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers)
    answers = run(dispatcher, trials_named(*KEYS))
    assert (set(answers), reasons(answers)) == (set(KEYS), {})
    assert len(pool.workers) == workers
    assert len(pool.submitted) == len(KEYS)
    assert dispatcher.wait() == []


def test_trials_with_most_work_start_first(trials_named):
    pool = ScriptedPool()
    works = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0, "e": 0.0}
    trials = [replace(trial, work=works[trial.key]) for trial in trials_named(*works)]
    run(make_dispatcher(pool, workers=1), trials)
    assert pool.submitted == ["b", "d", "c", "a", "e"]


@pytest.mark.parametrize(
    ("workers", "guilty", "cause", "reason"),
    [(1, "a", "process", "worker_lost"), (3, "t", "memory", "out_of_memory")],
)
def test_only_the_trial_that_ends_workers_fails(workers, guilty, cause, reason, trials_named):
    pool = ScriptedPool({guilty: [cause] * 99})
    answers = run(make_dispatcher(pool, workers), trials_named(*KEYS))
    assert (set(answers), reasons(answers)) == (set(KEYS), {guilty: reason})
    assert pool.submitted.count(guilty) == 3
    assert answers[guilty].error == "its worker was lost, 3 times: gone"


@pytest.mark.parametrize("workers", [1, 3])
def test_out_of_memory_is_retried_alone(workers, trials_named):
    pool = ScriptedPool({"c": ["out_of_memory"], "k": ["out_of_memory"] * 2})
    failed = reasons(run(make_dispatcher(pool, workers), trials_named(*KEYS)))
    assert set(failed) == ({"c", "k"} if workers == 1 else {"k"})
    if workers > 1:
        assert [pool.submitted.count(key) for key in "ckt"] == [2, 2, 1]
        assert sorted(pool.submitted[-2:]) == sorted(pool.alone) == ["c", "k"]
    assert len(pool.workers) == workers


@pytest.mark.parametrize("event", ["start", "calibration"])
def test_the_first_ready_worker_calibrates_and_a_lost_one_is_replaced(event, trials_named):
    pool = ScriptedPool({event: ["process"] * 2})
    dispatcher = make_dispatcher(pool, workers=1)
    assert dispatcher.calibrate() == {"unit": 1.0}
    assert [worker.is_dead for worker in pool.workers] == [True, True, False]
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


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        (ScriptedPool({"start": ["process"] * 3}), "died as they started, 3 in a row: gone"),
        (ScriptedPool({"start": ["refused last"]}), r"^the machine m cannot train: no GPU\.$"),
        (ScriptedPool(is_silent=True, has_no_room=True), "no worker started within 200 s"),
    ],
)
def test_without_any_worker_there_is_a_device_error(pool, words, trials_named):
    with pytest.raises(DeviceError, match=words):
        run(make_dispatcher(pool, workers=1, start=200.0), trials_named("a"))


def test_a_cluster_that_worked_before_has_start_seconds_to_recover(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1)
    incidents = listen(dispatcher)
    run(dispatcher, trials_named("a"))
    pool.script = {"b": ["process"], "start": ["process"] * 5}
    assert set(run(dispatcher, trials_named("b"))) == {"b"}
    incidents.clear()
    pool.script, num_workers = {"d": ["process"], "start": ["process"] * 400}, len(pool.workers)
    with pytest.raises(DeviceError, match=r"within 300 s.* died as it started: gone"):
        run(dispatcher, trials_named("d"))
    assert pool.now >= 300
    assert len(pool.workers) - num_workers < 20  # the back-off doubles
    assert sum("died as it started, and is tried again" in i.text for i in incidents) == 1


@pytest.mark.parametrize(("workers", "cause"), [(1, "node"), (3, "preempted"), (3, "gpu_unusable")])
def test_a_lost_machine_never_counts_against_the_trial(workers, cause, trials_named):
    pool = ScriptedPool({"c": [cause] * 10})
    dispatcher = make_dispatcher(pool, workers)
    incidents = listen(dispatcher)
    assert reasons(run(dispatcher, trials_named(*KEYS))) == {}
    assert pool.submitted.count("c") == 11
    lost = Incident(cause, f"a worker was lost ({cause}): gone.", "host:1", "c", 0)
    assert incidents == [lost] * 10
    if workers > 1:  # and not alone
        assert pool.submitted[-1] != "c"


def test_an_error_is_retried_in_another_process(trials_named):
    pool = ScriptedPool({"c": ["error"], "k": ["error"] * 2})
    dispatcher = make_dispatcher(pool, 2)
    incidents = listen(dispatcher)
    assert reasons(run(dispatcher, trials_named(*KEYS))) == {"k": "error"}
    assert [pool.submitted.count(key) for key in "ckt"] == [2, 2, 1]
    assert len(pool.workers) == 4
    assert [(i.kind, i.key, i.text) for i in incidents] == [
        ("error", key, "tried again in another worker: b") for key in "ck"
    ]


def test_a_hanging_worker_costs_its_trial_alone(trials_named):
    pool = ScriptedPool()
    dispatcher = make_dispatcher(pool, workers=1, patience=10.0)
    dispatcher.submit(trials_named(*KEYS))
    assert dispatcher.wait()[0][1].reason == "diverged"
    pool.is_silent = True
    ((trial, evaluation),) = dispatcher.wait()
    assert (trial.key, evaluation.reason) == ("b", "time_limit")
    pool.is_silent = False
    assert reasons(run(dispatcher, [])) == {}


def test_a_thousand_unreliable_workers_lose_no_trial_and_are_busy(trials_named):
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
