"""In this process: one candidate after the other, and each one's fault its own."""

from typing import Any

import pytest

from nas.errors import DeviceError
from nas.evaluation.choices import Choices
from nas.evaluation.guard import worker_name
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.record import Evaluation, Job
from nas.evaluation.trainer import train_candidate
from nas.mechanisms import mechanism
from nas.tasks import ImageData, Task, load_images, load_task


@pytest.fixture(scope="module")
def task() -> Task:
    sizes = {"epochs": 1, "train_images": 64, "validation_images": 32, "width": 32}
    return load_task("vit-cifar10", data="digits", overrides=sizes)


@pytest.fixture(scope="module")
def data(task: Task) -> ImageData:
    return load_images("digits", task)


def jobs_named(*keys: str) -> list[Job]:
    genome = mechanism("mha").genome
    return [Job(key, genome, seed) for seed, key in enumerate(keys)]


def unruly_training(job: Job, task: Task, data: ImageData, **limits: Any) -> Evaluation:
    faults: dict[str, BaseException] = {
        "memory": MemoryError("no room"),
        "exception": LookupError("broken"),
        "recursion": RecursionError("too deep"),
        "interrupt": KeyboardInterrupt(),
        "device": DeviceError("there is no GPU here."),
    }
    if job.key in faults:
        raise faults[job.key]
    if job.key == "diverged":
        task = task.model_copy(update={"learning_rate": 1e30})
    if job.key == "slow":
        task = task.model_copy(update={"epochs": 1000})
    return train_candidate(job, task, data, **limits)


def test_local_failures_stay_with_their_candidates(task: Task, data: ImageData) -> None:
    evaluator = LocalEvaluator(task, data, time_limit=2.0, train=unruly_training)
    jobs = jobs_named("a", "memory", "exception", "b", "diverged", "recursion", "slow", "c")
    answers = list(evaluator.run(jobs))
    evaluator.close()
    assert [job for job, _ in answers] == jobs
    assert {job.key: evaluation.reason for job, evaluation in answers} == {
        "a": None,
        "memory": "out_of_memory",
        "exception": "error",
        "b": None,
        "diverged": "diverged",
        "recursion": "error",
        "slow": "time_limit",
        "c": None,
    }
    caught = dict(zip((job.key for job in jobs), answers, strict=True))["exception"][1]
    assert caught.error == "LookupError: broken"
    assert caught.worker == worker_name()
    assert caught.budget == "1 epoch x 64 images"
    assert caught.seed == 2


@pytest.mark.parametrize(
    ("key", "expected"), [("interrupt", KeyboardInterrupt), ("device", DeviceError)]
)
def test_local_lets_pass_what_is_no_candidates_fault(
    task: Task, data: ImageData, key: str, expected: type[BaseException]
) -> None:
    answers = LocalEvaluator(task, data, train=unruly_training).run(jobs_named("a", key, "b"))
    assert next(answers)[1].is_ok
    with pytest.raises(expected):
        next(answers)


def test_local_trains_only_when_asked_for_the_next(task: Task, data: ImageData) -> None:
    begun: list[str] = []

    def train(job: Job, task: Task, data: ImageData, **limits: Any) -> Evaluation:
        begun.append(job.key)
        return train_candidate(job, task, data, **limits)

    answers = LocalEvaluator(task, data, train=train).run(jobs_named("a", "b"))
    next(answers)
    assert begun == ["a"]


def test_local_trains_the_seeds_of_a_genome_together_where_that_was_chosen(
    task: Task, data: ImageData
) -> None:
    genome = mechanism("mha").genome
    jobs = [Job(key, genome, seed) for seed in (1, 2, 3) for key in ("a", "b")]
    evaluator = LocalEvaluator(task, data)
    evaluator.use(Choices("float32", {}, "a machine", seeds_together=2))
    answers = list(evaluator.run(jobs))
    assert [(job.key, job.seed) for job, _ in answers] == [(k, s) for k in "ab" for s in (1, 2, 3)]
    together = [", 2 seeds together" in found.execution for _, found in answers]
    assert together == [True, True, False] * 2
    assert all(job.seed == found.seed for job, found in answers)
