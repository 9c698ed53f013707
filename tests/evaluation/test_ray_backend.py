"""The Ray backend: each way in which a candidate can fail costs that candidate alone."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray  # noqa: TID251 - the cluster that these tests share
import torch

from nas.common.errors import DeviceError
from nas.evaluation.execution import Execution
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.trainer import LocalEvaluator, Train, budget_of, train_candidate, worker_name
from nas.evaluation.trial import Evaluation, Trial, run_trials
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, Task
from tests.evaluation.conftest import MakeTrials, results
from tests.test_deploy import wait_for

CORES = 2
LIMIT, GRACE = 3.0, 5.0  # seconds of a training, and beyond them until its worker is ended
FAILURES = {
    "holds_the_interpreter": ("time_limit", "its worker was ended"),
    "time_limit": ("time_limit", "limit of 3 s"),
    "interrupt": ("error", "KeyboardInterrupt"),
    "memory": ("out_of_memory", "MemoryError"),
}
NUM_SOUND = 4
REAL = ("mha", "gqa", "uniform", "sqa")  # the last one is trained under the target task


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One local cluster for all tests, with a GPU that does not exist."""
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
    ray.init("local", num_cpus=CORES, num_gpus=1, logging_level="ERROR", **quiet)
    yield
    ray.shutdown()


def unruly_training(folder: Path) -> Train:
    """A training that fails as the trial's key says.

    A nested function, which Ray sends by value, because workers cannot import a test.
    """

    def train(trial: Trial, task: Task, data: Data, **limits: Any) -> Evaluation:
        with (folder / trial.key).open("a") as seen:
            seen.write(f"{os.getpid()}\n")
        if trial.key == "time_limit":
            long = task.model_copy(update={"epochs": 1000})
            return train_candidate(trial, long, data, **limits)
        if trial.key == "interrupt":
            raise KeyboardInterrupt
        if trial.key == "holds_the_interpreter":
            re.match("(a+)+b", "a" * 60)
        attempts = (folder / trial.key).read_text().count("\n")
        if trial.key == "memory" or (trial.key == "memory_once" and attempts == 1):
            resource.setrlimit(resource.RLIMIT_AS, (2**34, resource.RLIM_INFINITY))
            try:
                return bytes(2**35)  # more than this process may use
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        if trial.key in REAL:
            return train_candidate(trial, task, data, **limits)
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
def target(task: Task, data: Data) -> tuple[Task, Data]:
    return task.model_copy(update={"epochs": task.epochs + 1}), data


@pytest.fixture(scope="module")
def outcome(
    cluster: None,
    task: Task,
    data: Data,
    target: tuple[Task, Data],
    trials_named: MakeTrials,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Evaluation]:
    """Evaluations by key of one run with every failure, sound candidates between them."""
    sound = [f"sound{n}" for n in range(NUM_SOUND)]
    keys = [key for pair in zip(sound, FAILURES, strict=True) for key in pair]
    trials = [*trials_named(*keys, "memory_once"), *REAL_TRIALS]
    train = unruly_training(tmp_path_factory.mktemp("unruly"))
    # Of CORES + 1 workers one has no core; it waits for a machine to join.
    execution = Execution(workers=f"1:{CORES + 1}", gpus_per_worker=0, time_limit=LIMIT)
    options = {"train": train, "grace": GRACE, "target": target}
    with closing(RayEvaluator(task, data, execution, **options)) as evaluator:
        assert evaluator.workers == CORES + 1
        answers = list(run_trials(evaluator, trials))
    assert sorted(trial.key for trial, _ in answers) == sorted(trial.key for trial in trials)
    assert all(evaluation.seed == trial.seed for trial, evaluation in answers)
    return {trial.key: evaluation for trial, evaluation in answers}


REAL_TRIALS = [
    Trial(
        name,
        mechanism(name).genome,
        seed=n,
        keeps_weights=True,
        work=n,
        purpose="target" if n > 2 else "search",
    )
    for n, name in enumerate(REAL)
]


@pytest.mark.parametrize("key", FAILURES)
def test_failure_is_recorded_with_its_reason(outcome, key):
    reason, words = FAILURES[key]
    evaluation = outcome[key]
    assert evaluation.reason == reason, evaluation.error
    assert evaluation.error is not None
    assert re.search(words, evaluation.error)
    assert ":" in evaluation.worker
    assert evaluation.budget.examples == 64
    if reason == "time_limit":
        assert evaluation.wall_seconds < LIMIT + GRACE + 12


def test_failures_cost_no_other_candidate(outcome):
    """Nor do they cost a candidate that ran out of memory beside another one."""
    others = {key: evaluation for key, evaluation in outcome.items() if key not in FAILURES}
    assert len(others) == NUM_SOUND + 1 + len(REAL)
    assert [key for key, evaluation in others.items() if not evaluation.is_ok] == []


def test_worker_has_one_thread_driver_priority_and_shared_data(outcome):
    facts = {"threads": 1, "niceness": os.nice(0), "is_copy": False}
    assert outcome["sound0"].metrics == facts


def test_results_do_not_depend_on_the_backend(outcome, task, data, target):
    local = run_trials(LocalEvaluator(task, data, target=target), REAL_TRIALS)
    expected = {trial.key: results(evaluation) for trial, evaluation in local}
    assert {key: results(outcome[key]) for key in REAL} == expected
    epochs = {key: len(evaluation.reports) for key, evaluation in outcome.items()}
    assert (epochs["mha"], epochs["sqa"]) == (task.epochs, task.epochs + 1)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_gpu_that_torch_cannot_use_is_a_device_error(cluster, task, data, trials_named):
    with (
        closing(RayEvaluator(task, data, Execution(workers=2))) as evaluator,
        pytest.raises(DeviceError, match=r"machine .* cannot train: torch sees no GPU where"),
    ):
        list(run_trials(evaluator, trials_named("a", "b", "c")))


SCRIPT = """
import os, signal, sys, time
from contextlib import closing
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.execution import Execution
from nas.evaluation.trial import Budget, Evaluation, Trial, run_trials
from nas.common.errors import NasError
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task

asleep = sys.argv[1]
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

def main(keys):
    task = load_task("recall", overrides={"train_examples": 1})
    trials = [Trial(key, mechanism("mha").genome, 0) for key in keys]
    execution = Execution(workers=1, gpus_per_worker=0)
    with closing(RayEvaluator(task, task.load(), execution, train=train)) as evaluator:
        for trial, evaluation in run_trials(evaluator, trials):
            assert evaluation.is_ok, evaluation

try:
    main(sys.argv[2:])
except NasError as error:
    sys.exit(f"{type(error).__name__}: {error}")
except KeyboardInterrupt:
    sys.exit("stopped")
"""


@contextmanager
def started_script(tmp_path: Path, *keys: str) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "asleep"), *keys]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A session of its own, like a terminal's: an interrupt reaches the driver and all that it
    # started.
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "keys"), [(signal.SIGINT, ["sleeps"]), (signal.SIGTERM, ["exits", "sleeps"])]
)
def test_interrupt_ends_driver_and_workers_without_a_trace(tmp_path, number, keys):
    """A lost worker is reported by one line on standard error, and a signal by none of Ray's.

    A terminal interrupts all processes of its session. SIGTERM goes to the driver alone, because
    Ray may kill a driver without a message when Ray's own processes end at the same time.
    """
    send = os.killpg if number == signal.SIGINT else os.kill
    with started_script(tmp_path, *keys) as process:
        asleep = tmp_path / "asleep"
        wait_for(lambda: asleep.exists() and asleep.read_text())
        send(process.pid, number)
        out, err = process.communicate(timeout=60)
    *losses, last = err.splitlines()
    assert (out, last) == ("", "stopped"), err
    # On a loaded machine "exits" may be tried again before "sleeps" begins, or not be lost yet.
    assert "exits" in keys or not losses, err
    assert all(re.match(r"a worker was lost \(process\): .*\.$", line) for line in losses)
    worker = int(asleep.read_text())
    assert not Path(f"/proc/{worker}").exists()
    assert not [*Path("/tmp/ray").glob(f"session_*_{process.pid}")]
