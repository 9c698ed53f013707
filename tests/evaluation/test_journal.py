"""Finished trainings in a file: never repeated, never lost, never taken for others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from nas.errors import RunError
from nas.evaluation.choices import Choices
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.record import Evaluation, Evaluator, Job
from nas.mechanisms import mechanism
from nas.tasks import ImageData, Task, load_images, load_task


@pytest.fixture(scope="module")
def task() -> Task:
    sizes = {"epochs": 1, "train_images": 64, "validation_images": 32, "width": 32}
    return load_task("vit-cifar10", data="digits", overrides=sizes)


@pytest.fixture(scope="module")
def data(task: Task) -> ImageData:
    return load_images("digits", task)


CHOSEN = Choices("float32", {"a place": {16: "a way"}}, "here")


class Counting:
    """An evaluator that notes what it was asked to train."""

    def __init__(self, evaluator: Evaluator, choices: Choices | None = None) -> None:
        self.evaluator, self.asked, self.workers = evaluator, list[str](), 1
        self.choices = choices or CHOSEN

    def choose(self, seeds: int = 1) -> Choices:
        return self.choices

    def use(self, choices: Choices) -> None:
        self.evaluator.use(choices)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Evaluation]]:
        for job, evaluation in self.evaluator.run(jobs):
            self.asked.append(job.key)
            yield job, evaluation

    def close(self) -> None:
        self.evaluator.close()


def jobs_named(*keys: str) -> list[Job]:
    genome = mechanism("mha").genome
    return [Job(key, genome, seed) for seed, key in enumerate(keys)]


def run(
    path: Path, task: Task, data: ImageData, jobs: Sequence[Job], stop: int | None = None
) -> tuple[dict[str, Evaluation], list[str]]:
    """What came back, and what was trained for it; ``stop`` is where the reader went away."""
    inner = Counting(LocalEvaluator(task, data))
    found = {}
    with closing(JournaledEvaluator(inner, path, task, data)) as journaled:
        for number, (job, evaluation) in enumerate(journaled.run(jobs)):
            found[job.key] = evaluation
            if number + 1 == stop:
                break
    return found, inner.asked


def test_a_stopped_comparison_goes_on_where_it_was(
    tmp_path: Path, task: Task, data: ImageData
) -> None:
    path, jobs = tmp_path / "new" / "study.jsonl", jobs_named("a", "b", "c")
    first, trained = run(path, task, data, jobs, stop=2)
    assert trained == ["a", "b"]
    whole, trained = run(path, task, data, jobs)
    assert trained == ["c"]
    assert {name: whole[name] for name in first} == first
    assert run(path, task, data, jobs) == (whole, [])


def test_a_line_that_a_kill_cut_short_is_trained_again(
    tmp_path: Path, task: Task, data: ImageData
) -> None:
    path, jobs = tmp_path / "study.jsonl", jobs_named("a", "b")
    run(path, task, data, jobs)
    path.write_text(path.read_text()[:-20])
    assert run(path, task, data, jobs)[1] == ["b"]
    assert run(path, task, data, jobs)[1] == []


def test_another_task_or_seed_is_another_training(
    tmp_path: Path, task: Task, data: ImageData
) -> None:
    path = tmp_path / "study.jsonl"
    run(path, task, data, jobs_named("a"))
    longer = task.model_copy(update={"epochs": 2})
    assert run(path, longer, data, jobs_named("a"))[1] == ["a"]
    assert run(path, task, data, jobs_named("x", "a"))[1] == ["x", "a"]


def test_a_failure_is_kept_and_tried_again(tmp_path: Path, task: Task, data: ImageData) -> None:
    path, jobs = tmp_path / "study.jsonl", jobs_named("a")
    hopeless = task.model_copy(update={"learning_rate": 1e30})
    assert run(path, hopeless, data, jobs)[0]["a"].reason == "diverged"
    assert run(path, hopeless, data, jobs)[1] == ["a"]
    assert len(path.read_text().splitlines()) == 2


def test_a_comparison_goes_on_with_the_choices_it_began_with(
    tmp_path: Path, task: Task, data: ImageData
) -> None:
    path = tmp_path / "study.jsonl"
    with closing(JournaledEvaluator(LocalEvaluator(task, data), path, task, data)) as journaled:
        journaled.use(CHOSEN)
        list(journaled.run(jobs_named("a")))
    elsewhere = Choices("bfloat16", {}, "another machine")
    inner = Counting(LocalEvaluator(task, data), elsewhere)
    with closing(JournaledEvaluator(inner, path, task, data)) as journaled:
        assert journaled.choose() == CHOSEN
    longer = task.model_copy(update={"epochs": 2})
    with closing(JournaledEvaluator(inner, path, longer, data)) as journaled:
        assert journaled.choose() == elsewhere


OTHERS = ("nonsense\n", "[]\n", '{"mechanism": "a"}\n', '{"graph_def": []}', "one\nmy notes")


@pytest.mark.parametrize("text", OTHERS)
def test_another_file_is_refused(tmp_path: Path, task: Task, data: ImageData, text: str) -> None:
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(RunError, match="line 1: holds no training"):
        JournaledEvaluator(LocalEvaluator(task, data), path, task, data)
    assert path.read_text() == text


def test_one_process_at_a_time(tmp_path: Path, task: Task, data: ImageData) -> None:
    path = tmp_path / "study.jsonl"
    first = JournaledEvaluator(LocalEvaluator(task, data), path, task, data)
    with closing(first), pytest.raises(RunError, match="another process is recording into it"):
        JournaledEvaluator(LocalEvaluator(task, data), path, task, data)
    JournaledEvaluator(LocalEvaluator(task, data), path, task, data).close()


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, task: Task, data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    journaled = JournaledEvaluator(LocalEvaluator(task, data), tmp_path / "a", task, data)
    monkeypatch.setattr(os, "fsync", full)
    with closing(journaled), pytest.raises(RunError, match="No space left on device"):
        list(journaled.run(jobs_named("a")))


@pytest.mark.parametrize("name", ["", "/dev/full"])
def test_what_is_no_file_is_refused(tmp_path: Path, task: Task, data: ImageData, name: str) -> None:
    with pytest.raises(RunError, match="is no file"):
        JournaledEvaluator(LocalEvaluator(task, data), tmp_path / name, task, data)
