"""The rules of the dispatcher, on simulated workers with faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nas.common.errors import DeviceError
from nas.evaluation.dispatch import MAX_STARTS, Dispatcher
from nas.evaluation.trial import Evaluation, Incident, Trial, run_trials
from tests.evaluation.conftest import make_evaluation
from tests.evaluation.simulated import SimulatedPool, make_dispatcher

KEYS = tuple("abcdefghijklmnopqrst")
OK = make_evaluation()


def make_pool(faults: dict[str, list[str]] | None = None, **options: float) -> SimulatedPool:
    """A pool with the faults of the first attempts by key."""
    listed = faults or {}

    def fault(key: str, attempt: int) -> str:
        return dict(enumerate(listed.get(key, []))).get(attempt, "")

    return SimulatedPool(lambda _: OK, fault, **options)


def run(dispatcher: Dispatcher, trials: Sequence[Trial]) -> dict[str, Evaluation]:
    answers = [(trial.key, evaluation) for trial, evaluation in run_trials(dispatcher, trials)]
    assert len(answers) == len(dict(answers)) == len(trials)
    return dict(answers)


def reasons(answers: dict[str, Evaluation]) -> dict[str, str | None]:
    """The reasons of all failed evaluations."""
    return {key: found.reason for key, found in answers.items() if not found.is_ok}


def listen(dispatcher: Dispatcher) -> list[Incident]:
    incidents: list[Incident] = []
    dispatcher.on_incident = incidents.append
    return incidents


@pytest.mark.parametrize("workers", [1, 50])
def test_every_trial_is_answered_once(workers, trials_named):
    pool = make_pool()
    dispatcher = make_dispatcher(pool, workers)
    assert reasons(run(dispatcher, trials_named(*KEYS))) == {}
    assert (pool.started, pool.killed, len(pool.submitted)) == (workers, 0, len(KEYS))
    assert dispatcher.wait() == []
    dispatcher.submit(trials_named(*KEYS))
    dispatcher.close()
    dispatcher.close()
    assert pool.killed == workers
    assert dispatcher.wait() == []


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("process", "worker_lost"),
        ("refused", "worker_lost"),
        ("memory", "out_of_memory"),
        ("out_of_memory", "out_of_memory"),
        ("worker_lost", "worker_lost"),  # an unusable GPU that several workers share
    ],
)
def test_lost_processes_and_memory_are_retried_alone_once(workers, fault, reason, trials_named):
    pool = make_pool({"c": [fault], "k": [fault] * 9})
    failed = run(make_dispatcher(pool, workers), trials_named(*KEYS))
    assert reasons(failed) == {"k": reason}
    assert [pool.submitted.count(key) for key in "ckt"] == [2, 2, 1]
    assert sorted(pool.submitted[-2:]) == sorted(pool.alone) == ["c", "k"]
    if fault in ("process", "memory", "refused"):
        assert failed["k"].error.startswith("its worker was lost twice: ")
        assert (pool.started, pool.killed) == (workers + 3, 3)


def test_no_other_trial_runs_beside_one_that_is_retried(trials_named):
    spans: list[tuple[float, float]] = []  # a retry takes a thousand seconds

    class Timed(SimulatedPool):
        def submit(self, worker, trial, *, is_alone=False):
            trial = replace(trial, work=1000.0) if is_alone else trial
            spans.append((self.now, self.now + trial.work))
            return super().submit(worker, trial, is_alone=is_alone)

    pool = Timed(lambda _: OK, lambda key, attempt: "memory" * (key in "ck" and attempt == 0))
    trials = [replace(trial, work=1.0 + trial.seed) for trial in trials_named(*KEYS)]
    run(make_dispatcher(pool, 4), trials)
    assert sorted(pool.alone) == ["c", "k"]
    for start, end in (span for span in spans if span[1] - span[0] == 1000):
        others = [span for span in spans if span != (start, end)]
        assert all(last <= start or first >= end for first, last in others)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_lost_machine_never_counts_against_the_trial(workers, trials_named):
    pool = make_pool({"c": ["node"] * 10, "start": ["node"] * 10}, start_seconds=1.0)
    dispatcher = make_dispatcher(pool, workers)
    incidents = listen(dispatcher)
    assert reasons(run(dispatcher, trials_named(*KEYS))) == {}
    assert pool.submitted.count("c") == 11
    assert pool.alone == []
    assert incidents == [Incident("node", "a worker was lost (node): gone.", "host:1", "c", 0)] * 10


def test_a_failed_candidate_is_not_retried_and_a_spent_worker_is_replaced(trials_named):
    pool = make_pool({"c": ["error"], "d": ["spent"]})
    assert reasons(run(make_dispatcher(pool, 1), trials_named(*KEYS))) == {"c": "error"}
    assert pool.submitted == [*KEYS]
    assert (pool.started, pool.killed) == (2, 1)


def test_a_hanging_worker_costs_its_trial_alone(trials_named):
    pool = make_pool({"b": ["hangs"], "k": ["hangs"]})
    failed = run(make_dispatcher(pool, 2), trials_named(*KEYS))
    assert reasons(failed) == {"b": "time_limit", "k": "time_limit"}
    assert failed["b"].error == "no answer within 1800 s, so its worker was ended"
    assert failed["b"].wall_seconds == 1800
    assert (pool.started, pool.killed) == (4, 2)


def test_a_worker_that_cannot_train_gets_no_trials_and_keeps_its_place(trials_named):
    pool = make_pool({"start": ["", "refused", "refused"]})
    dispatcher = make_dispatcher(pool, 4)
    incidents = listen(dispatcher)
    assert reasons(run(dispatcher, trials_named(*KEYS))) == {}
    assert (pool.started, pool.killed) == (4, 0)
    assert [(i.kind, i.text) for i in incidents] == [
        ("refused", "the machine m cannot train: no GPU.")
    ]
    dispatcher.close()
    assert pool.killed == 4


@pytest.mark.parametrize(
    ("faults", "starts", "words"),
    [
        (["process"] * 9, 2 * MAX_STARTS, "a worker died as it started, 3 times: gone"),
        (["refused"] * 9, 2, r"^the machine m cannot train: no GPU\.$"),
        (["refused", "hangs"], 2, r"within 300 s: .*; the machine m cannot train: no GPU\. Try"),
        (["hangs"] * 2, 2, r"no worker started within 300 s: the cluster may be busy\. Try"),
    ],
)
def test_without_any_worker_there_is_a_device_error(faults, starts, words, trials_named):
    pool = make_pool({"start": faults})
    dispatcher = make_dispatcher(pool, 2)
    incidents = listen(dispatcher)
    for wait in (lambda: run(dispatcher, trials_named("a")), dispatcher.ready_worker):
        with pytest.raises(DeviceError, match=words):
            wait()
    assert pool.started == starts
    assert pool.now <= 300  # a worker that is given up does not prolong the wait
    waits = [i.text for i in incidents if i.kind == "waiting"]
    assert len(waits) == ("hangs" in faults)
    assert all(text.startswith("no worker for 30 s") for text in waits)


def test_a_thousand_unreliable_workers_lose_no_trial_and_are_busy(trials_named):
    trials = [replace(t, work=5.0 + t.seed % 7) for t in trials_named(*map(str, range(8000)))]
    lost = range(1, len(trials), 50)
    pool = SimulatedPool(
        lambda _: OK, lambda key, n: "node" * (key != "start" and not n and int(key) in lost)
    )
    dispatcher = make_dispatcher(pool, 1000)
    incidents = listen(dispatcher)
    assert reasons(run(dispatcher, trials)) == {}
    assert {incident.kind for incident in incidents} == {"node"}
    assert len(incidents) == len(lost)
    assert pool.busy == sum(trial.work for trial in trials)
    assert pool.busy / (1000 * (pool.now - pool.start_seconds)) > 0.8
