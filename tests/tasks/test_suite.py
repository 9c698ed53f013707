"""Suites: loading, gates, the worst regret, training of members."""

from __future__ import annotations

import math

import pytest

from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task, parse_task
from nas.tasks.suite import Reference, Suite

SMALL = {"width": 16, "heads": 2, "epochs": 1, "train_examples": 64, "validation_examples": 32}


def suite_of(gate=None, **fields) -> Suite:
    members = {
        "recall": {"pairs": 4, "num_keys": 8, "num_values": 4, **SMALL, "gate": gate},
        "text": {"task": "bytes", "length": 16, **SMALL},
    }
    found = parse_task({"kind": "suite", "name": "two", "members": members, **fields}, "here")
    assert isinstance(found, Suite)
    return found


def test_built_in_suites():
    both = load_task("images-and-bytes", data="images=digits")
    assert list(both.members) == ["recall", "images", "bytes"]
    assert both.members["images"].task == load_task("vit-cifar10", data="digits")
    assert list(both.regret_tasks) == ["images", "bytes"]
    assert both.main is both.members["bytes"].task
    assert load_task("bytes-and-recall").main == load_task("bytes")


def test_a_suite_round_trips():
    suite = suite_of({"metric": "accuracy", "at_least": 0.5}).with_references(
        {"text": Reference(metric="bits_per_byte", mha=2.0, uniform=3.0)}
    )
    again = parse_task(suite.to_dict(), "frozen")
    assert again == suite
    assert again.fingerprint() == suite.fingerprint()


@pytest.mark.parametrize(
    "changed",
    [
        {"gate": {"metric": "accuracy", "at_least": 0.5}},
        {"gate": {"metric": "log_loss", "at_most": 0.5}},
        {"counted_at": "text"},
        {"references": {"text": {"metric": "bits_per_byte", "mha": 2.0, "uniform": 3.0}}},
    ],
)
def test_what_changes_results_changes_the_fingerprint(changed):
    assert suite_of(**changed).fingerprint() != suite_of().fingerprint()


def test_regret_is_relative_to_mha_and_uniform():
    known = {
        "recall": Reference(metric="accuracy", mha=0.9, uniform=0.1),
        "text": Reference(metric="bits_per_byte", mha=2.0, uniform=3.0),
    }
    suite = suite_of().with_references(known)
    found = {"recall": {"accuracy": 0.7}, "text": {"bits_per_byte": 1.9}}
    summary = suite.summary(found)
    assert summary["recall.regret"] == pytest.approx(0.25)
    assert summary["text.regret"] == pytest.approx(-0.1)
    assert summary["worst_regret"] == summary["recall.regret"]
    assert summary["recall.accuracy"] == 0.7
    assert "worst_regret" not in suite.summary({"recall": found["recall"]})
    data = suite.load()
    worst, *_ = suite.metrics(data)
    assert (worst.name, worst.direction, worst.chance) == ("worst_regret", "min", 1.0)
    # Perfect recall is the bound that is reached first; no bits at all would be a regret of -2.
    assert worst.ideal == pytest.approx((1.0 - 0.9) / (0.1 - 0.9))
    assert [m.name for m in suite_of().metrics(data)][:2] == ["recall.accuracy", "recall.log_loss"]


def test_each_member_is_trained_as_on_its_own():
    suite = suite_of()
    data = suite.load()
    both = train_candidate(Trial("key", mechanism("mha").genome, 3), suite, data)
    assert both.is_ok, both.error
    assert [report.epoch for report in both.reports] == [1, 2]
    assert both.budget.examples == 128
    for name, member in suite.members.items():
        alone = train_candidate(
            Trial("key", mechanism("mha").genome, 3), member.task, data.parts[name]
        )
        own = {f"{name}.{metric}": value for metric, value in alone.metrics.items()}
        assert own.items() <= both.metrics.items()


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ({"metric": "accuracy", "at_least": 1.01}, "and must be at least 1.01"),
        ({"metric": "log_loss", "at_most": 0.0}, "and must be at most 0"),
    ],
)
def test_a_missed_gate_stops_a_candidate(gate, words):
    suite = suite_of(gate)
    trial = Trial("key", mechanism("mha").genome, 3, keeps_weights=True)
    stopped = train_candidate(trial, suite, suite.load())
    assert (stopped.status, stopped.reason, stopped.weights) == ("stopped", None, None)
    assert stopped.error.startswith("gate of recall: ")
    assert words in stopped.error
    assert len(stopped.reports) == 1
    assert not any(name.startswith("text.") for name in stopped.metrics)
    assert suite.members["recall"].gate.missed({gate["metric"]: math.nan})
