"""``nas evaluate``, ``benchmark`` and ``explain``: trainings of small tasks, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.common.errors import RunError
from nas.common.rates import CHOOSING_SEEDS
from nas.evaluation.local import LocalEvaluator
from nas.store import appending, open_run
from tests.cli.conftest import LOCAL

ROOT = Path(__file__).resolve().parents[2]

SEQUENCES = """
name: tiny-{kind}
kind: {kind}
width: 8
depth: 1
heads: 2
epochs: 1
train_examples: 16
validation_examples: 8
batch_size: 8
"""


def answers_of(folder: Path, command: Any) -> list[Any]:
    with open_run(folder) as run:
        return [*run.answers(command)]


def refuse(*_: Any) -> None:
    raise RunError("the disk is full.")


@pytest.fixture
def at_sequences(at_tasks: Path) -> Path:
    """Add two tasks on sequences to the folder."""
    for kind in ("induction", "copying"):
        Path(f"{kind}.yaml").write_text(SEQUENCES.format(kind=kind))
    return at_tasks


@pytest.mark.usefixtures("at_sequences")
def test_benchmark_trains_each_mechanism_under_each_task_once(nas: Any) -> None:
    command = (
        *("benchmark", "uniform", "patterns_and_messages", "--seeds", 2, *LOCAL),
        *("--tasks", "induction.yaml,copying.yaml", "--record", "record.jsonl"),
    )
    first = nas(*command, "--json")
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    assert answer["against"] == "mha"
    assert list(answer["tasks"]) == ["tiny-induction", "tiny-copying"]
    mha, uniform, _ = answer["mechanisms"]
    assert len(mha["tasks"]["tiny-copying"]["values"]) == 2
    assert uniform["tasks"]["tiny-induction"]["verdict"] in {"better", "worse", "undecided"}
    recorded = Path("record.jsonl").read_text()
    again = nas(*command)
    assert "tiny-copying: accuracy %, higher is better" in again.out
    assert "[12/12]" in again.err
    assert Path("record.jsonl").read_text() == recorded
    assert json.loads(nas(*command, "--json").out) == answer


@pytest.mark.usefixtures("at_sequences")
def test_benchmark_accepts_data_of_a_task_that_it_does_not_run(nas: Any) -> None:
    command = ("benchmark", "uniform", "--tasks", "copying.yaml", "--seeds", 1, *LOCAL)
    result = nas(*command, "--data", "bytes=file:anywhere")
    assert result.status == 0, result.err


@pytest.mark.usefixtures("at_tasks")
def test_benchmark_accepts_data_by_a_path_of_a_task_and_by_its_name(nas: Any) -> None:
    for name in ("tiny.yaml", "tiny"):
        command = ("benchmark", "uniform", "--tasks", "tiny.yaml", "--seeds", 1, *LOCAL)
        result = nas(*command, "--data", f"{name}=imagefolder:nowhere")
        assert result.status == 2
        assert "nowhere: there is no such folder" in result.err


@pytest.mark.usefixtures("at_sequences")
def test_benchmark_leaves_out_mechanisms_that_do_not_exist_under_a_task(nas: Any) -> None:
    result = nas("benchmark", "lsqa", "--tasks", "copying.yaml", "--seeds", 1, *LOCAL)
    assert result.status == 0, result.err
    assert "lsqa under tiny-copying: " in result.out
    assert "3/4 of 2" in result.out


@pytest.mark.usefixtures("at_sequences")
@pytest.mark.parametrize(
    ("command", "fact"),
    [
        ("benchmark uniform --tasks copying.yaml", "uniform under tiny-copying: 2 of 2 failed"),
        ("explain uniform --task tiny.yaml", "without W_V: 2 of 2 failed, time_limit"),
    ],
)
def test_status_is_1_if_every_training_fails(nas: Any, command: str, fact: str) -> None:
    result = nas(*command.split(), "--seeds", 2, *LOCAL, "--time-limit", 1e-6)
    assert result.status == 1
    assert fact in result.out


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        ("benchmark uniform --tasks recall --data byte=file:here", "did you mean 'bytes'?"),
        ("benchmark uniform --data recall", "expected TASK=SPEC"),
        ("benchmark uniform --tasks recall,recall", "expected each once"),
        ("benchmark uniform --tasks recall,bytes --data bytes=file:/nowhere", "no such file"),
        ("benchmark gqa --tasks bytes-and-recall", "nas benchmark --tasks recall,bytes"),
        ("evaluate uniform --task copying --test", "has no test set"),
        ("explain mha --most-seeds 4", "expected a number from seeds, 5,"),
        ("explain mha --task copying --margin nan", "expected a number above 0"),
        ("explain lsqa --task copying", "3/4 of 2"),
        ("explain mha --task bytes-and-recall", "is made of several"),
    ],
)
def test_arguments_are_refused_before_anything_is_trained(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, fact: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = nas(*command.split(), *LOCAL)
    assert result.status == 2
    assert fact in result.err
    assert "[1/" not in result.err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("at_tasks")
def test_the_test_set_is_used_on_request_only(nas: Any) -> None:
    command = ("evaluate", "uniform", "--task", "tiny.yaml", *LOCAL, "--record", "record")
    held_out = json.loads(nas(*command, "--json").out)
    tested = json.loads(nas(*command, "--test", "--json").out)
    assert [held_out["test"], tested["test"]] == [False, True]
    scores = [answer["evaluations"][0]["objectives"] for answer in (held_out, tested)]
    assert scores[0] != scores[1]
    assert "test set" in nas(*command, "--test").out
    options = ("--tasks", "tiny.yaml", "--seeds", 1, *LOCAL, "--record", "record", "--test")
    result = nas("benchmark", "uniform", *options)
    assert "[1/2] uniform, seed 0" in result.err  # recorded by `evaluate`
    assert "test set" in result.out


@pytest.mark.usefixtures("at_tasks")
def test_explain_trains_edits_path_and_controls(nas: Any) -> None:
    command = (
        *("explain", "mha:window=4", "--task", "tiny.yaml", "--seeds", 2, "--most-seeds", 3),
        *(*LOCAL, "--record", "record.jsonl"),
    )
    first = nas(*command, "--json")
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    assert (answer["seeds"], answer["task"]) == ([2, 3], "tiny")
    edits = {row["words"]: row for row in answer["edits"]}
    window = edits["without window of 4"]
    assert window["formula"] == "(softmax((Q·Kᵀ)/√d)·V)·W_O"
    assert window["verdict"] in {"needed", "harmless", "harmful", "unresolved"}
    gains = [a - b for a, b in zip(window["values"], answer["values"], strict=False)]
    assert window["difference"]["mean"] == pytest.approx(sum(gains) / len(gains))
    assert edits["without W_Q"]["added_costs"]["params"] == -(16**2)
    assert edits["without W_Q"]["added_costs"]["time_ms"] < 0
    [step] = answer["path"]
    assert (step["words"], step["id"]) == ("with window of 4", answer["id"])
    assert step["difference"]["mean"] == -window["difference"]["mean"]
    assert answer["controls"][0]["words"] == "mha"
    recorded = Path("record.jsonl").read_text()
    again = nas(*command)
    assert again.status == 0, again.err
    assert Path("record.jsonl").read_text() == recorded
    num = len(recorded.splitlines())
    assert f"[{num}/{num}]" in again.err
    assert "From mha to mha:window=4" in again.out
    assert "after 2 and 3 seeds" in again.out


def test_explain_and_benchmark_of_a_member_are_kept_in_its_run(
    nas: Any, at_tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--gens", 1, "--pop", 2, "--run", "a", "--algorithm", "random", *LOCAL)
    space = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    Path("timed.yaml").write_text(space.replace("[quality, macs]", "[quality, time_ms]"))
    nas("search", "--space", "timed.yaml", "--task", "tiny.yaml", *options)
    folder = at_tasks / "runs" / "a"
    monkeypatch.setattr(LocalEvaluator, "calibrate", refuse)  # the run's unit times are used
    explain = ("explain", "a/best", "--seeds", 2, *LOCAL, "--json")
    benchmark = ("benchmark", "a/best", "--tasks", "tiny.yaml", "--seeds", 2, *LOCAL, "--json")
    first = nas(*explain)
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    member = json.loads(nas("front", "a", "--json").out)["members"][0]
    assert (answer["id"], answer["costs"]["time_ms"]) == (
        member["id"],
        member["objectives"]["time_ms"],
    )
    assert (answer["task"], len(answer["values"])) == ("tiny", 2)
    assert answers_of(folder, "explain") == [answer]
    assert nas("report", "a", "-o", "a.html").status == 0
    assert "Edits of " in Path("a.html").read_text()
    compared = json.loads(nas(*benchmark).out)
    assert compared["mechanisms"][1]["id"] == answer["id"]
    assert answers_of(folder, "benchmark") == [compared]
    with open_run(folder) as run:
        trained = run.trainings("explain")
    assert len(trained) == len({(t.key, t.repeat) for t in trained}) >= 4
    monkeypatch.setattr(appending, "append_answer", refuse)
    for command in (explain, benchmark):
        again = nas(*command)
        assert again.status == 0
        assert answer["id"] in again.out
        assert "cannot be kept" in again.err.splitlines()[-1]
    with open_run(folder) as run:
        assert len(run.trainings("explain")) == len(trained)
    assert "nowhere" in nas("explain", "a/best", "--data", "imagefolder:nowhere", *LOCAL).err


@pytest.mark.usefixtures("at_sequences")
def test_benchmark_at_several_rates_resumes_and_shares_records(nas: Any) -> None:
    rates = "\nlearning_rates: [0.001, 0.003]\nlearning_rate: 0.003\n"
    Path("rates.yaml").write_text(SEQUENCES.format(kind="induction") + rates)
    command = ("benchmark", "uniform", *LOCAL, "--record", "record.jsonl", "--seeds", 2)
    assert nas(*command, "--tasks", "rates.yaml").status == 0
    answer = nas(*command, "--tasks", "rates.yaml", "--rates", "--json")
    assert answer.status == 0, answer.err
    recorded = Path("record.jsonl").read_text().splitlines()
    assert len(recorded) == 2 * 2 * (2 + CHOOSING_SEEDS)  # mechanisms, rates, seeds
    found = json.loads(answer.out)
    cell = found["mechanisms"][1]["tasks"]["tiny-induction"]
    assert cell["learning_rate"] in (0.001, 0.003)
    assert found["tuning"]["trainings"] == len(recorded) - 2 * 2
    again = nas(*command, "--tasks", "rates.yaml", "--rates")
    assert "[16/16] uniform at rate 0.003, seed 3" in again.err
    assert Path("record.jsonl").read_text().splitlines() == recorded
    refused = nas(*command, "--tasks", "copying.yaml", "--rates")
    assert "'tiny-copying' offers no learning rates to choose from" in refused.err
