"""Gated tasks: loading, gates, and the training of their models."""

from __future__ import annotations

import math

import pytest

from nas.common.errors import ConfigError, TaskError
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task, parse_task
from nas.tasks.gated import GatedTask

SMALL = {"width": 16, "heads": 2, "epochs": 1, "train_examples": 64, "validation_examples": 32}
RECALL = {"name": "recall", "pairs": 4, "num_keys": 8, "num_values": 4, **SMALL}
ALWAYS = {"metric": "accuracy", "at_least": 0.0}


def gated(gate=ALWAYS, **fields) -> GatedTask:
    task = {"name": "bytes", "length": 16, **SMALL}
    gates = {"recall": {"task": RECALL, **gate}}
    made = {"kind": "gated", "name": "two", "task": task, "gates": gates, **fields}
    found = parse_task(made, "here")
    assert isinstance(found, GatedTask)
    return found


def test_built_in_gated_task():
    task = load_task("bytes-and-recall", data="file:/book.txt")
    assert task.main == load_task("bytes", data="file:/book.txt")
    assert task.data == "file:/book.txt"
    assert task.gates["recall"].task == load_task("recall")


def test_the_gate_of_text_takes_a_tenth_of_its_training_at_most():
    task = load_task("text-and-recall")
    assert task.main == load_task("text")
    gate, text = (
        each.epochs * each.train_examples * each.sizes.tokens * each.depth
        for each in (task.gates["recall"].task, task.main)
    )
    assert gate / text < 0.1


def test_data_of_a_recorded_gated_task_may_have_moved():
    task = gated()
    moved = parse_task({**task.to_dict(), "data": "file:/there"}, "frozen")
    assert (moved.data, moved.main.data) == ("file:/there", "file:/there")
    assert moved.fingerprint() == task.fingerprint()


@pytest.mark.parametrize(
    "changed",
    [
        {"gate": {"metric": "accuracy", "at_least": 0.5}},
        {"gate": {"metric": "log_loss", "at_most": 0.5}},
        {"task": {"name": "bytes", "length": 32, **SMALL}},
    ],
)
def test_what_changes_results_changes_the_fingerprint(changed):
    assert gated(**changed).fingerprint() != gated().fingerprint()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"task": "bytes-and-recall"}, TaskError, "task: 'bytes-and-recall' is gated"),
        ({"gates": {}}, ConfigError, "gates"),
        ({"gate": {"metric": "accuracy"}}, ConfigError, "one of at_least and at_most"),
    ],
)
def test_an_invalid_gated_task_is_refused(changes, error, words):
    with pytest.raises(error, match=words):
        gated(**changes)


def test_a_gate_names_a_metric_of_its_task():
    with pytest.raises(ConfigError, match=r"gate recall, metric: found 'acuracy' \(did you mean"):
        gated({"metric": "acuracy", "at_least": 0.5}).load()


def test_each_model_is_trained_as_on_its_own():
    task = gated()
    data = task.load()
    trial = Trial("key", mechanism("mha").genome, 3)
    both = train_candidate(trial, task, data)
    assert both.is_ok, both.error
    assert [report.epoch for report in both.reports] == [1, 2]
    assert both.budget.examples == 128
    models = task.models(data)
    assert [*models] == ["recall", ""]
    for name, (model, its_data) in models.items():
        alone = train_candidate(trial, model, its_data)
        own = {f"{name}.{m}" if name else m: value for m, value in alone.metrics.items()}
        assert own.items() <= both.metrics.items()


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ({"metric": "accuracy", "at_least": 1.01}, "and must be at least 1.01"),
        ({"metric": "log_loss", "at_most": 0.0}, "and must be at most 0"),
    ],
)
def test_a_missed_gate_stops_a_candidate(gate, words):
    task = gated(gate)
    trial = Trial("key", mechanism("mha").genome, 3, keeps_weights=True)
    stopped = train_candidate(trial, task, task.load())
    assert (stopped.status, stopped.reason, stopped.weights) == ("stopped", None, None)
    assert stopped.error.startswith("gate of recall: ")
    assert words in stopped.error
    assert len(stopped.reports) == 1
    assert stopped.metrics.keys() == {"recall.accuracy", "recall.log_loss"}
    assert task.gates["recall"].missed({gate["metric"]: math.nan})
