"""Ray's workers: every way in which a candidate can fail, provoked for real, stays its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray  # noqa: TID251 - the cluster that these tests share
import torch

from nas.common.errors import DeviceError
from nas.evaluation.execution import Execution
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.ray_backend import RayEvaluator, _own_signals
from nas.evaluation.trainer import Train, budget_of, train_candidate, worker_name
from nas.evaluation.trial import Evaluation, Evaluator, Trial, run_trials
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, Task
from tests.evaluation.conftest import MakeTrials

CORES = 5
NAMES = ("mha", "gqa", "uniform", "sqa")
# Beyond a training's limit of one second; a new worker on a busy machine needs most of it.
GRACE = 20.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """One local cluster for all tests here; evaluators find this process connected and use it.

    Ray believes what it is told about GPUs.
    """
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    ray.init("local", num_cpus=CORES, num_gpus=1, logging_level="ERROR", **quiet)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture(scope="module")
def unruly(
    cluster: str, task: Task, data: Data, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayEvaluator]:
    train = unruly_training(tmp_path_factory.mktemp("unruly"))
    asked = Execution(workers=2, gpus_per_worker=0, time_limit=1.0)
    with closing(RayEvaluator(task, data, asked, train=train, grace=GRACE)) as evaluator:
        yield evaluator


def unruly_training(folder: Path) -> Train:
    """A training that does what the job's key says.

    A function within a function: Ray sends it by value, for workers cannot import a test.
    """
    raised = {
        "memory_error": MemoryError("no room"),
        "exception": LookupError("a primitive is broken"),
        "interrupt": KeyboardInterrupt(),
        "system_exit": SystemExit(0),
    }

    def train(trial: Trial, task: Task, data: Data, **limits: Any) -> Evaluation:
        with (folder / trial.key).open("a") as seen:
            seen.write(f"{os.getpid()}\n")
        if trial.key == "diverged":
            hopeless = task.model_copy(update={"learning_rate": 1e30})
            return train_candidate(trial, hopeless, data, device=limits["device"])
        if trial.key == "time_limit":
            long = task.model_copy(update={"epochs": 1000})
            return train_candidate(trial, long, data, **limits)
        if trial.key in raised:
            raise raised[trial.key]
        if trial.key == "holds_the_interpreter":
            re.match("(a+)+b", "a" * 60)
        if trial.key == "exits":
            os._exit(3)
        losses = (folder / trial.key).read_text().count("\n")
        if trial.key == "is_killed_once" and losses == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        flags = data.train["images"].flags
        facts = {
            "threads": torch.get_num_threads(),
            "niceness": os.nice(0),
            "is_copy": flags.owndata or flags.writeable,
        }
        budget = budget_of(task, data)
        return Evaluation("ok", None, facts, (), trial.seed, budget, 0.0, 0.0, 0, worker_name())

    return train


@pytest.fixture(scope="module")
def outcome(unruly: RayEvaluator, trials_named: MakeTrials) -> dict[str, Evaluation]:
    """All failures in one run, good candidates between them."""
    bad = list(FAILURES)
    good = [f"good{n}" for n in range(12)]
    keys = [key for pair in zip(good, bad, strict=False) for key in pair] + good[len(bad) :]
    trials = trials_named(*keys, "is_killed_once")
    answers = list(run_trials(unruly, trials))
    assert sorted(trial.key for trial, _ in answers) == sorted(trial.key for trial in trials)
    assert all(evaluation.seed == trial.seed for trial, evaluation in answers)
    return {trial.key: evaluation for trial, evaluation in answers}


FAILURES = {
    "holds_the_interpreter": ("time_limit", "its worker was ended"),
    "diverged": ("diverged", "loss is|not finite"),
    "time_limit": ("time_limit", "limit of 1 s"),
    "memory_error": ("out_of_memory", "no room"),
    "exception": ("error", "LookupError: a primitive is broken"),
    "interrupt": ("error", "KeyboardInterrupt"),
    "system_exit": ("error", "SystemExit: 0"),
    "exits": ("worker_lost", "3 times"),
}


@pytest.mark.parametrize("key", FAILURES)
def test_failure_is_recorded_with_its_reason(outcome, key):
    reason, words = FAILURES[key]
    evaluation = outcome[key]
    assert evaluation.reason == reason, evaluation.error
    assert evaluation.error is not None
    assert re.search(words, evaluation.error)
    assert ":" in evaluation.worker
    assert evaluation.budget.examples == 64
    if reason in ("time_limit", "worker_lost"):
        assert evaluation.wall_seconds < GRACE + 15


def test_failure_of_one_leaves_all_others_alone(outcome):
    """Nor does a worker that is killed once cost its own candidate anything."""
    good = {key: evaluation for key, evaluation in outcome.items() if key not in FAILURES}
    assert len(good) == 13
    assert [key for key, evaluation in good.items() if not evaluation.is_ok] == []


def test_worker_has_one_thread_our_priority_and_shares_the_data(outcome):
    facts = {"threads": 1, "niceness": os.nice(0), "is_copy": False}
    assert outcome["good0"].metrics == facts


def test_results_depend_on_neither_workers_nor_backend(cluster, task, data):
    trials = [
        Trial(name, mechanism(name).genome, seed=n, keeps_weights=True, work=n)
        for n, name in enumerate(NAMES)
    ]
    found = []
    # Of six there is a core for some, and the others wait for a machine to join.
    for workers, most in ((1, 1), (f"1:{CORES + 1}", CORES + 1)):
        asked = Execution(workers=workers, gpus_per_worker=0)
        with closing(RayEvaluator(task, data, asked)) as evaluator:
            assert evaluator.workers == most
            found.append(results(evaluator, trials))
    assert found[0] == found[1] == results(LocalEvaluator(task, data), trials)


def results(evaluator: Evaluator, trials: list[Trial]) -> dict[str, Any]:
    """What must not depend on where and when a trial ran: all but the time it took."""
    collected = {}
    for trial, evaluation in run_trials(evaluator, trials):
        assert evaluation.is_ok, evaluation.error
        reports = [(report.train_loss, report.metrics) for report in evaluation.reports]
        collected[trial.key] = (evaluation.metrics, reports, evaluation.weights)
    return collected


def test_more_workers_than_the_cluster_has_is_one_sentence(cluster, task, data):
    with pytest.raises(DeviceError, match="9 workers need 9 processor cores"):
        RayEvaluator(task, data, Execution(workers=9))
    with pytest.raises(DeviceError, match=r"3 workers with 0\.5 of a GPU each do not fit"):
        RayEvaluator(task, data, Execution(workers=3, gpus_per_worker=0.5))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_gpu_that_torch_cannot_use_is_no_candidates_fault(cluster, task, data, trials_named):
    with (
        closing(RayEvaluator(task, data, Execution(workers=2))) as evaluator,
        pytest.raises(DeviceError, match=r"machine .* cannot train: torch sees no GPU where"),
    ):
        list(run_trials(evaluator, trials_named("a", "b", "c")))


def test_second_cluster_is_refused(cluster, task, data):
    with pytest.raises(DeviceError, match=r"connected to the Ray cluster at .* already"):
        RayEvaluator(task, data, Execution(ray_address="127.0.0.1:1"))


SCRIPT = """
import os, signal, sys, time
from contextlib import closing
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.execution import Execution
from nas.evaluation.trial import Budget, Evaluation, Trial, run_trials
from nas.common.errors import NasError
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task

asleep = sys.argv[2]
signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `nas` does

def train(trial, task, data, **limits):
    if trial.key == "exits" and not os.path.exists(asleep + ".exited"):
        open(asleep + ".exited", "x").close()
        os._exit(3)
    if trial.key == "sleeps":
        with open(asleep, "a") as file:
            print(os.getpid(), file=file)
        time.sleep(1000)
    budget = Budget(1, 1, "float32")
    return Evaluation("ok", None, {"accuracy": 0.5}, (), 0, budget, 0.0, 0.0, 0, "")

def main(address, keys):
    task = load_task("recall", overrides={"train_examples": 1})
    trials = [Trial(key, mechanism("mha").genome, 0) for key in keys]
    asked = Execution(workers=1, gpus_per_worker=0, ray_address=address)
    with closing(RayEvaluator(task, task.load(), asked, train=train)) as evaluator:
        for trial, evaluation in run_trials(evaluator, trials):
            assert evaluation.is_ok, evaluation

try:
    main(sys.argv[1] or None, sys.argv[3:])
except NasError as error:
    sys.exit(f"{type(error).__name__}: {error}")
except KeyboardInterrupt:
    sys.exit("stopped")
"""


@contextmanager
def started_script(tmp_path: Path, address: str, *keys: str) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), address, str(tmp_path / "asleep"), *keys]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A session of its own, like a terminal's: an interrupt reaches the driver and all that it
    # started.
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def test_cluster_is_joined_by_address(cluster, tmp_path):
    with started_script(tmp_path, cluster, "good") as process:
        assert process.communicate(timeout=180) == ("", "")
    assert process.returncode == 0
    assert ray.cluster_resources()["CPU"] == CORES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_stops_a_cluster_of_our_own_within_seconds(tmp_path, number):
    """On SIGTERM there was a stack trace of Ray's."""
    with started_script(tmp_path, "", "exits", "sleeps") as process:
        wait_for(tmp_path / "asleep")
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    assert (out, err.splitlines()[1:]) == ("", ["stopped"])
    assert re.match(r"a worker was lost \(process\): .*\.\n", err)
    worker = int((tmp_path / "asleep").read_text())
    assert not Path(f"/proc/{worker}").exists()


def test_sigterm_while_ray_starts_is_like_an_interrupt():
    """Ray's own handler, there by then, ended the command with status 15 and no word."""
    kept = signal.getsignal(signal.SIGTERM)

    def begin() -> None:
        with _own_signals():
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        begin()
    assert signal.getsignal(signal.SIGTERM) is kept


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 180
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
