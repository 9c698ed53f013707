"""Suites: loading, gates, the worst regret, training of members."""

from __future__ import annotations

import math

import pytest

from nas.common.config import parse_yaml
from nas.common.errors import ConfigError, TaskError
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task, parse_task
from nas.tasks.suite import Reference, Suite

REFERENCE = (
    "{{members: {{bytes: {{}}}}, "
    "references: {{bytes: {{metric: accuracy, mha: {mha}, uniform: 0.5}}}}}}"
)
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


def test_names_and_data_do_not_change_the_fingerprint():
    assert suite_of(about="other", data="text=made").fingerprint() == suite_of().fingerprint()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("members: {}", "members"),
        ("members: {bytes: 3}", "members"),
        ("members: {bytes: {task: byte}}", "there is no task 'byte'"),
        ("members: {bytes: {task: [1]}}", "expected a task's name or fields"),
        ("members: {bytes-and-recall: {}}", "found a suite"),
        ("members: {bytes: {gate: {metric: accuracy}}}", "one of at_least and at_most"),
        ("members: {bytes: {gate: {metric: accuracy, at_least: .nan}}}", "finite number"),
        ("members: {bytes: {gate: {metric: accuracy, at_least: 1}}}", "every member has a gate"),
        ("{members: {bytes: {}}, counted_at: byte}", "did you mean 'bytes'"),
        ("members: {vit-cifar10: {data: digits}, bytes: {}}", "vit-cifar10, which is not causal"),
        ("{members: {bytes: {}}, data: images=digits}", "found 'images=digits'"),
        ("{members: {bytes: {}}, data: 3}", "data: found 3"),
        ("{members: {bytes: {}}, data: {bytes: 3}}", "data: found {'bytes': 3}"),
        ("{members: {bytes: {}}, references: {x: {}}}", "references"),
        (REFERENCE.format(mha=0.5), "mha and uniform are equal"),
        (REFERENCE.format(mha=".nan"), "finite number"),
    ],
)
def test_invalid_suites_are_refused(fields, message):
    with pytest.raises((ConfigError, TaskError)) as error:
        parse_task({"kind": "suite", "name": "x", **parse_yaml(fields, "here")}, "here")
    assert message in str(error.value)


def test_a_gate_or_reference_on_an_unknown_metric_is_refused():
    with pytest.raises(ConfigError, match=r"gate: .*did you mean 'accuracy'"):
        suite_of({"metric": "acuracy", "at_least": 0.5}).load()
    unknown = {"text": Reference(metric="bits", mha=2.0, uniform=3.0)}
    with pytest.raises(ConfigError, match="reference: found 'bits'"):
        suite_of().with_references(unknown).load()


def test_data_specs_by_member(tmp_path):
    path = tmp_path / "a, b=c.txt"
    path.write_bytes(bytes(range(256)) * 8)
    suite = suite_of(data={"text": f"file:{path}"})
    assert suite.members["text"].task.data == f"file:{path}"
    assert suite.load().digest != suite_of().load().digest


def test_a_gated_member_may_be_counted_at_and_needs_no_test_set():
    members = {
        "recall": {**SMALL, "gate": {"metric": "accuracy", "at_least": 0.5}},
        "digits": {"task": "vit-cifar10", "data": "digits"},
    }
    fields = {"kind": "suite", "name": "x", "members": members, "counted_at": "recall"}
    suite = parse_task(fields, "here")
    assert suite.main is suite.members["recall"].task
    assert list(suite.without_gates().members) == ["digits"]
    assert suite.without_gates().main.name == "vit-cifar10"
    parts = suite.load_test().parts
    assert parts["recall"].digest == suite.load().parts["recall"].digest
    assert parts["digits"].digest != suite.load().parts["digits"].digest


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


def test_a_mechanism_that_does_not_fit_a_later_member_is_not_trained(genome):
    members = {"a": {"task": "bytes", **SMALL}, "b": {"task": "bytes", **SMALL, "width": 18}}
    suite = parse_task({"kind": "suite", "name": "x", "members": members}, "here")
    rope = genome(("rope", "q"), ("scaled_dot_product", [0, "k"]), ("softmax", [1]),
                  ("weighted_sum", [2, "v"]))  # fmt: skip
    failed = train_candidate(Trial("k", rope, 0), suite, suite.load())
    assert (failed.status, failed.reports) == ("failed", ())
    assert "rope" in failed.error
