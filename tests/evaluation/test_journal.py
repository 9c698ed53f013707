"""Finished trainings in a file: never repeated, never lost, never taken for others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from nas.errors import RunError
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.trial import Evaluation, Trial, run_trials
from nas.tasks import Data, Task
from tests.evaluation.conftest import MakeTrials


class Counting(LocalEvaluator):
    """Notes what it was asked to train."""

    def __init__(self, task: Task, data: Data) -> None:
        super().__init__(task, data)
        self.asked: list[str] = []

    def submit(self, trials: Sequence[Trial]) -> None:
        self.asked += [trial.key for trial in trials]
        super().submit(trials)


def run(
    path: Path, task: Task, data: Data, trials: Sequence[Trial]
) -> tuple[dict[str, Evaluation], list[str]]:
    """What came back, and what was trained for it."""
    inner = Counting(task, data)
    with closing(JournaledEvaluator(inner, path, task, data)) as journaled:
        found = {trial.key: answer for trial, answer in run_trials(journaled, trials)}
    return found, inner.asked


def test_a_stopped_comparison_goes_on_where_it_was(
    tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    path, trials = tmp_path / "new" / "study.jsonl", trials_named("a", "b", "c")
    first, trained = run(path, task, data, trials[:2])
    assert trained == ["a", "b"]
    whole, trained = run(path, task, data, trials)
    assert trained == ["c"]
    assert {name: whole[name] for name in first} == first
    assert run(path, task, data, trials) == (whole, [])


def test_each_training_is_durable_before_the_next(
    tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    path = tmp_path / "study.jsonl"
    with closing(JournaledEvaluator(LocalEvaluator(task, data), path, task, data)) as journaled:
        journaled.submit(trials_named("a", "b"))
        journaled.wait()
        assert len(path.read_text().splitlines()) == 1
    assert run(path, task, data, trials_named("a", "b"))[1] == ["b"]


def test_a_line_that_a_kill_cut_short_is_trained_again(
    tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    path, trials = tmp_path / "study.jsonl", trials_named("a", "b")
    run(path, task, data, trials)
    path.write_text(path.read_text()[:-20])
    assert run(path, task, data, trials)[1] == ["b"]
    assert run(path, task, data, trials)[1] == []


def test_another_task_or_seed_is_another_training(
    tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    path = tmp_path / "study.jsonl"
    run(path, task, data, trials_named("a"))
    longer = task.model_copy(update={"epochs": 2})
    assert run(path, longer, data, trials_named("a"))[1] == ["a"]
    assert run(path, task, data, trials_named("x", "a"))[1] == ["x", "a"]


def test_a_failure_is_kept_and_tried_again(
    tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    path, trials = tmp_path / "study.jsonl", trials_named("a")
    hopeless = task.model_copy(update={"learning_rate": 1e30})
    assert run(path, hopeless, data, trials)[0]["a"].reason == "diverged"
    assert run(path, hopeless, data, trials)[1] == ["a"]
    assert len(path.read_text().splitlines()) == 2


def test_a_trial_of_other_epochs_or_with_weights_is_trained(
    tmp_path: Path, task: Task, data: Data, trials_named: MakeTrials
) -> None:
    path, (trial,) = tmp_path / "study.jsonl", trials_named("a")
    run(path, task, data, [trial])
    assert run(path, task, data, [replace(trial, epochs=1)])[1] == ["a"]
    found, trained = run(path, task, data, [replace(trial, keeps_weights=True)])
    assert trained == ["a"]
    assert found["a"].weights


OTHERS = ("nonsense\n", "[]\n", '{"mechanism": "a"}\n', '{"graph_def": []}', "one\nmy notes")


@pytest.mark.parametrize("text", OTHERS)
def test_another_file_is_refused(tmp_path: Path, task: Task, data: Data, text: str) -> None:
    path = tmp_path / "other.txt"
    path.write_text(text)
    with pytest.raises(RunError, match="line 1: holds no training"):
        JournaledEvaluator(LocalEvaluator(task, data), path, task, data)
    assert path.read_text() == text


def test_one_process_at_a_time(tmp_path: Path, task: Task, data: Data) -> None:
    path = tmp_path / "study.jsonl"
    first = JournaledEvaluator(LocalEvaluator(task, data), path, task, data)
    with closing(first), pytest.raises(RunError, match="another process is recording into it"):
        JournaledEvaluator(LocalEvaluator(task, data), path, task, data)
    JournaledEvaluator(LocalEvaluator(task, data), path, task, data).close()


def test_a_full_disk_is_one_sentence(
    tmp_path: Path,
    task: Task,
    data: Data,
    trials_named: MakeTrials,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    journaled = JournaledEvaluator(LocalEvaluator(task, data), tmp_path / "a", task, data)
    monkeypatch.setattr(os, "fsync", full)
    with closing(journaled), pytest.raises(RunError, match="No space left on device"):
        list(run_trials(journaled, trials_named("a")))


@pytest.mark.parametrize("name", ["", "/dev/full"])
def test_what_is_no_file_is_refused(tmp_path: Path, task: Task, data: Data, name: str) -> None:
    with pytest.raises(RunError, match="is no file"):
        JournaledEvaluator(LocalEvaluator(task, data), tmp_path / name, task, data)
