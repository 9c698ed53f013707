"""Trainings and answers of other commands are recorded in a run."""

from __future__ import annotations

import dataclasses

import pytest

from nas.common.errors import RunError
from nas.evaluation.trial import NOT_RECORDED, Training
from nas.store import database
from nas.store.writer import RunRecord


@pytest.fixture
def training(samples):
    return Training("explain", "task", "vit", "key", "without gelu", 0, samples.evaluation())


@pytest.fixture
def record(writer):
    return RunRecord([writer.run.folder], None)


def test_same_question_replaces_its_answer(writer, record):
    record.add_answer(["a", "b"], {"seeds": 2, "text": "Σ\ud800"})
    record.add_answer(["a", "b"], {"seeds": 5, "text": "Σ\ud800"})
    record.add_answer(["a", "c"], {"seeds": 3})
    answers = sorted(writer.run.answers(), key=lambda answer: answer["seeds"])
    assert answers == [{"seeds": 3}, {"seeds": 5, "text": "Σ\\ud800"}]


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000])
def test_damaged_answer_is_refused(writer, record, text):
    record.add_answer(["a"], {})
    writer.run.execute("UPDATE answers SET record = :text", text=text)
    with pytest.raises(RunError, match="record that cannot be read"):
        writer.run.answers()


def test_training_is_appended_while_a_search_writes_the_run(writer, record, samples, training):
    samples.fill(writer, [(0.5, 10.0)])
    record.add(training)
    record.add(training)
    [recorded] = writer.run.trainings("explain")
    assert dataclasses.replace(recorded, recorded=NOT_RECORDED) == training
    assert len(writer.run.trainings()) == 1


def test_later_result_replaces_a_failed_training(writer, record, samples, training):
    failure = samples.failure(seed=training.evaluation.seed)
    record.add(dataclasses.replace(training, evaluation=failure))
    record.add(training)
    [recorded] = writer.run.trainings("explain")
    assert recorded.evaluation == training.evaluation


def test_file_is_used_by_one_process_at_a_time_and_keeps_trainings(tmp_path, training, monkeypatch):
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.05)
    path = tmp_path / "study.sqlite"
    with RunRecord([], path) as record:
        record.add(training)
        with pytest.raises(RunError, match="another process has locked it"):
            RunRecord([], path)
    with RunRecord([], path) as record:
        assert [recorded.evaluation for recorded in record.trainings("explain")] == [
            training.evaluation
        ]
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    with pytest.raises(RunError, match="no run database"):
        RunRecord([], text)
    assert text.read_text() == "mine"
