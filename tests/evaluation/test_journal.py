"""Finished trainings in a file: never repeated, never lost, never taken for others."""

from __future__ import annotations

from contextlib import closing

import pytest

from nas.common.errors import RunError
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.local import LocalEvaluator
from nas.evaluation.trial import run_trials


class Counting(LocalEvaluator):
    """Records the keys of all trials that it is to train."""

    def __init__(self, task, data):
        super().__init__(task, data)
        self.submitted = []

    def submit(self, trials):
        self.submitted += [trial.key for trial in trials]
        super().submit(trials)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "study.jsonl"


@pytest.fixture
def journaled(path, task, data):
    def make(task=task):
        return JournaledEvaluator(Counting(task, data), path, task, data)

    return make


@pytest.fixture
def run(journaled, task):
    """Run trials; return their evaluations, and the keys of the trials that were trained."""

    def train(trials, task=task):
        with closing(journaled(task)) as evaluator:
            answers = {trial.key: answer for trial, answer in run_trials(evaluator, trials)}
            return answers, evaluator._evaluator.submitted

    return train


def test_a_stopped_comparison_goes_on_where_it_was(run, trials_named):
    trials = trials_named("a", "b", "c")
    first, trained = run(trials[:2])
    assert trained == ["a", "b"]
    whole, trained = run(trials)
    assert trained == ["c"]
    assert {name: whole[name] for name in first} == first
    assert run(trials) == (whole, [])


def test_a_line_that_a_kill_cut_short_is_trained_again(run, path, trials_named):
    trials = trials_named("a", "b")
    run(trials)
    path.write_text(path.read_text()[:-20])
    assert run(trials)[1] == ["b"]
    assert run(trials)[1] == []


def test_another_task_or_seed_is_another_training(run, task, trials_named):
    (trial,) = trials_named("a")
    run([trial])
    assert run([trial], task.model_copy(update={"epochs": 2}))[1] == ["a"]
    assert run(trials_named("x", "a"))[1] == ["x", "a"]


def test_a_failure_is_kept_and_tried_again(run, path, task, trials_named):
    hopeless = task.model_copy(update={"learning_rate": 1e30})
    assert run(trials_named("a"), hopeless)[0]["a"].reason == "diverged"
    assert run(trials_named("a"), hopeless)[1] == ["a"]
    assert len(path.read_text().splitlines()) == 2


def test_one_process_at_a_time(journaled):
    with (
        closing(journaled()),
        pytest.raises(RunError, match="another process is recording into it"),
    ):
        journaled()
    journaled().close()
