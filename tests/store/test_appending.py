"""Trainings and answers of other commands are recorded in a run."""

from __future__ import annotations

import dataclasses

import pytest

from nas.common.errors import RunError
from nas.evaluation.trial import NOT_RECORDED, Training
from nas.store import append_answer, append_training


@pytest.fixture
def training(samples):
    return Training("explain", "task", "vit", "key", "without gelu", 0, samples.evaluation())


def test_same_question_replaces_its_answer(writer):
    folder = writer.run.folder
    append_answer(folder, ["a", "b"], {"seeds": 2, "text": "Σ\ud800"})
    append_answer(folder, ["a", "b"], {"seeds": 5, "text": "Σ\ud800"})
    append_answer(folder, ["a", "c"], {"seeds": 3})
    answers = sorted(writer.run.answers(), key=lambda answer: answer["seeds"])
    assert answers == [{"seeds": 3}, {"seeds": 5, "text": "Σ\\ud800"}]


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000])
def test_damaged_answer_is_refused(writer, text):
    append_answer(writer.run.folder, ["a"], {})
    writer._database.execute("UPDATE answers SET record = :text", text=text)
    with pytest.raises(RunError, match="record that cannot be read"):
        writer.run.answers()


def test_training_is_appended_while_a_search_writes_the_run(writer, samples, training):
    samples.fill(writer, [(0.5, 10.0)])
    append_training(writer.run.folder, training)
    append_training(writer.run.folder, training)
    [recorded] = writer.run.trainings("explain")
    assert dataclasses.replace(recorded, recorded=NOT_RECORDED) == training
    assert len(writer.run.trainings()) == 1


def test_later_result_replaces_a_failed_training(writer, samples, training):
    failure = samples.failure(seed=training.evaluation.seed)
    append_training(writer.run.folder, dataclasses.replace(training, evaluation=failure))
    append_training(writer.run.folder, training)
    [recorded] = writer.run.trainings("explain")
    assert recorded.evaluation == training.evaluation
