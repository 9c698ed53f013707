"""Ray's workers: every way in which a candidate can fail, provoked for real, stays its own."""

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

from nas.errors import DeviceError
from nas.evaluation.choices import Choices
from nas.evaluation.guard import Train, worker_name
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.record import Evaluation, Job
from nas.evaluation.trainer import train_candidate
from nas.mechanisms import mechanism
from nas.tasks import ImageData, Task, load_images, load_task

CORES = 5
NAMES = ("mha", "gqa", "uniform", "sqa")


# Beyond a training's limit of one second; a new worker on a busy machine needs most of it.
GRACE = 30.0


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
def task() -> Task:
    sizes = {"epochs": 1, "train_images": 64, "validation_images": 32, "width": 32}
    return load_task("vit-cifar10", data="digits", overrides=sizes)


@pytest.fixture(scope="module")
def data(task: Task) -> ImageData:
    return load_images("digits", task)


@pytest.fixture(scope="module")
def unruly(
    cluster: str, task: Task, data: ImageData, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayEvaluator]:
    train = unruly_training(tmp_path_factory.mktemp("unruly"))
    limits = {"workers": 2, "gpus_per_worker": 0, "time_limit": 1.0, "grace": GRACE}
    with closing(RayEvaluator(task, data, train=train, **limits)) as evaluator:
        yield evaluator


def unruly_training(folder: Path) -> Train:
    """A training that does what the job's key says.

    A function within a function: Ray sends it by value, for workers cannot import a test.
    """

    def train(job: Job, task: Task, data: ImageData, **limits: Any) -> Evaluation:
        with (folder / job.key).open("a") as seen:
            seen.write(f"{os.getpid()}\n")
        if job.key == "diverged":
            return train_candidate(job, task.model_copy(update={"learning_rate": 1e30}), data)
        if job.key == "time_limit":
            long = task.model_copy(update={"epochs": 1000})
            return train_candidate(job, long, data, **limits)
        if job.key == "memory_error":
            raise MemoryError("no room")
        if job.key == "exception":
            raise LookupError("a primitive is broken")
        if job.key == "sleeps":
            time.sleep(1000)
        if job.key == "holds_the_interpreter":
            re.match("(a+)+b", "a" * 60)
        if job.key == "exits":
            os._exit(3)
        if job.key == "is_killed_once" and (folder / job.key).read_text().count("\n") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        facts = {
            "accuracy": 0.5,
            "threads": float(torch.get_num_threads()),
            "is_copy": float(data.train.flags.owndata or data.train.flags.writeable),
        }
        usage = {"wall_seconds": 0.0, "core_seconds": 0.0, "peak_memory_bytes": 0}
        return Evaluation(
            status="ok",
            reason=None,
            objectives=facts,
            curve=(),
            seed=job.seed,
            budget=task.budget,
            worker=worker_name(),
            error=None,
            **usage,
        )

    return train


def jobs_named(*keys: str) -> list[Job]:
    genome = mechanism("mha").genome
    return [Job(key, genome, seed) for seed, key in enumerate(keys)]


@pytest.fixture(scope="module")
def outcome(unruly: RayEvaluator) -> dict[str, Evaluation]:
    """All failures in one run, good candidates between them."""
    bad = list(FAILURES)
    good = [f"good{n}" for n in range(12)]
    keys = [key for pair in zip(good, bad, strict=False) for key in pair] + good[len(bad) :]
    jobs = jobs_named(*keys, "is_killed_once")
    answers = list(unruly.run(jobs))
    assert sorted(job.key for job, _ in answers) == sorted(job.key for job in jobs)
    assert all(evaluation.seed == job.seed for job, evaluation in answers)
    return {job.key: evaluation for job, evaluation in answers}


FAILURES = {
    "holds_the_interpreter": ("time_limit", "its worker was ended"),
    "diverged": ("diverged", "loss is|not finite"),
    "time_limit": ("time_limit", "limit of 1 s"),
    "memory_error": ("out_of_memory", "no room"),
    "exception": ("error", "LookupError: a primitive is broken"),
    "exits": ("worker_lost", "twice"),
}


@pytest.mark.parametrize("key", FAILURES)
def test_failure_is_recorded_with_its_reason(outcome: dict[str, Evaluation], key: str) -> None:
    reason, words = FAILURES[key]
    evaluation = outcome[key]
    assert evaluation.reason == reason, evaluation.error
    assert evaluation.error is not None
    assert re.search(words, evaluation.error)
    assert ":" in evaluation.worker
    assert evaluation.budget
    if reason in ("time_limit", "worker_lost"):
        assert evaluation.wall_seconds < GRACE + 15


def test_failure_of_one_leaves_all_others_alone(outcome: dict[str, Evaluation]) -> None:
    good = {key: evaluation for key, evaluation in outcome.items() if key not in FAILURES}
    assert len(good) == 13
    assert [key for key, evaluation in good.items() if not evaluation.is_ok] == []


def test_lost_worker_gives_its_candidate_a_second_try(outcome: dict[str, Evaluation]) -> None:
    assert outcome["is_killed_once"].is_ok


def test_worker_has_one_thread_and_shares_the_data(outcome: dict[str, Evaluation]) -> None:
    facts = outcome["good0"].objectives
    assert facts["threads"] == 1
    assert not facts["is_copy"]


def test_run_that_is_abandoned_leaves_the_evaluator_usable(unruly: RayEvaluator) -> None:
    with closing(unruly.run(jobs_named("a", "b", "sleeps"))) as answers:
        next(answers)
    again = dict(unruly.run(jobs_named("c")))
    assert [evaluation.is_ok for evaluation in again.values()] == [True]
    assert list(unruly.run([])) == []


def test_choices_are_measured_at_a_worker_and_reach_them_all(
    cluster: str, task: Task, data: ImageData
) -> None:
    def train(job: Job, task: Task, data: ImageData, **limits: Any) -> Evaluation:
        from nas.kernels import Measured

        raise RuntimeError(f"{task.precision} {sorted(Measured.ways)}")

    limits = {"workers": 2, "gpus_per_worker": 0}
    with closing(RayEvaluator(task, data, train=train, **limits)) as evaluator:
        choices = evaluator.choose()
        before = [found.error for _, found in evaluator.run(jobs_named("a"))]
        evaluator.use(choices)
        after = {found.error for _, found in evaluator.run(jobs_named("b", "c", "d"))}
    assert choices.ways
    assert before == [f"RuntimeError: {task.precision} []"]
    assert after == {f"RuntimeError: {choices.precision} {sorted(choices.ways)}"}


def test_seeds_that_were_chosen_to_train_together_do(
    cluster: str, task: Task, data: ImageData
) -> None:
    genome = mechanism("mha").genome
    jobs = [Job(key, genome, seed) for seed in (1, 2, 3) for key in ("a", "b")]
    with closing(RayEvaluator(task, data, workers=2, gpus_per_worker=0)) as evaluator:
        evaluator.use(Choices("float32", {}, "here", seeds_together=2))
        found = {(job.key, job.seed): e for job, e in evaluator.run(jobs)}
    assert all(e.is_ok and e.seed == seed for (_, seed), e in found.items())
    together = {key: ", 2 seeds together" in e.execution for key, e in found.items()}
    assert together == {(k, s): s < 3 for k in "ab" for s in (1, 2, 3)}


def test_number_of_workers_changes_no_result(cluster: str, task: Task, data: ImageData) -> None:
    jobs = [Job(name, mechanism(name).genome, seed=n) for n, name in enumerate(NAMES)]
    with closing(RayEvaluator(task, data, workers=1, gpus_per_worker=0)) as one:
        alone = results(one.run(jobs))
    with closing(RayEvaluator(task, data, workers=2, gpus_per_worker=0)) as two:
        assert two.workers == 2
        assert results(two.run(jobs)) == alone
    assert results(LocalEvaluator(task, data).run(jobs)) == alone


def results(answers: Iterator[tuple[Job, Evaluation]]) -> dict[str, Any]:
    """What must not depend on where and when a job ran: all but the time it took."""
    collected = {}
    for job, evaluation in answers:
        assert evaluation.is_ok, evaluation.error
        objectives = {k: v for k, v in evaluation.objectives.items() if k != "latency_ms"}
        collected[job.key] = (objectives, evaluation.curve)
    return collected


def test_more_workers_than_the_cluster_has_is_one_sentence(
    cluster: str, task: Task, data: ImageData
) -> None:
    with pytest.raises(DeviceError, match="9 workers need 9 processor cores"):
        RayEvaluator(task, data, workers=9)
    with pytest.raises(DeviceError, match=r"3 workers with 0\.5 of a GPU each do not fit"):
        RayEvaluator(task, data, workers=3, gpus_per_worker=0.5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_gpu_that_torch_cannot_use_is_no_candidates_fault(
    cluster: str, task: Task, data: ImageData
) -> None:
    with (
        closing(RayEvaluator(task, data, workers=2)) as evaluator,
        pytest.raises(DeviceError, match=r"torch sees no GPU on .*, where Ray counts one"),
    ):
        list(evaluator.run(jobs_named("a", "b", "c")))


def test_second_cluster_is_refused(cluster: str, task: Task, data: ImageData) -> None:
    with pytest.raises(DeviceError, match=r"connected to the Ray cluster at .* already"):
        RayEvaluator(task, data, address="127.0.0.1:1")


SCRIPT = """
import os, sys, time
from contextlib import closing
from nas.evaluation.ray_backend import RayEvaluator
from nas.evaluation.record import Evaluation, Job
from nas.errors import NasError
from nas.mechanisms import mechanism
from nas.tasks import load_images, load_task

asleep = sys.argv[2]

def train(job, task, data, **limits):
    if job.key == "exits" and not os.path.exists(asleep + ".exited"):
        open(asleep + ".exited", "x").close()
        os._exit(3)
    if job.key == "sleeps":
        with open(asleep, "a") as file:
            print(os.getpid(), file=file)
        time.sleep(1000)
    return Evaluation("ok", None, {"accuracy": 0.5}, (), 0, "", 0.0, 0.0, 0, "", None)

def main(address, keys):
    task = load_task("vit-cifar10", data="digits")
    jobs = [Job(key, mechanism("mha").genome, 0) for key in keys]
    data = load_images("digits", task)
    asked = dict(workers=1, gpus_per_worker=0, address=address, train=train)
    with closing(RayEvaluator(task, data, **asked)) as evaluator:
        for job, evaluation in evaluator.run(jobs):
            assert evaluation.is_ok, evaluation

try:
    main(sys.argv[1] or None, sys.argv[3:])
except NasError as error:
    sys.exit(f"{type(error).__name__}: {error}")
except KeyboardInterrupt:
    sys.exit("stopped")
"""


@contextmanager
def started_script(tmp_path: Path, address: str, *keys: str) -> "Iterator[subprocess.Popen[str]]":
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


def test_cluster_is_joined_by_address(cluster: str, tmp_path: Path) -> None:
    with started_script(tmp_path, cluster, "good") as process:
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
    assert ray.cluster_resources()["CPU"] == CORES


def test_interrupt_stops_a_cluster_of_our_own_within_seconds(tmp_path: Path) -> None:
    with started_script(tmp_path, "", "exits", "sleeps") as process:
        wait_for(tmp_path / "asleep")
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "stopped\n")
    worker = int((tmp_path / "asleep").read_text())
    assert not Path(f"/proc/{worker}").exists()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
