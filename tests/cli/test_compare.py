"""``nas evaluate`` and ``explain``: trainings of small tasks, members of runs, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.common.errors import RunError
from nas.evaluation.trainer import LocalEvaluator
from nas.store import open_run, writer
from nas.store.writer import RunRecord
from tests.cli.conftest import LOCAL, SEQUENCES

ROOT = Path(__file__).resolve().parents[2]


def refuse(*_: Any) -> None:
    raise RunError("the disk is full.")


@pytest.mark.usefixtures("at_folder")
def test_evaluate_trains_each_mechanism_under_each_task_once(nas: Any) -> None:
    for kind in ("induction", "copying"):
        Path(f"{kind}.yaml").write_text(SEQUENCES.format(name=f"tiny-{kind}", kind=kind))
    command = (
        *("evaluate", "mha", "uniform", "patterns_and_messages", "--seeds", 2, *LOCAL),
        *("--tasks", "induction.yaml,copying.yaml", "--record", "record.sqlite"),
    )
    first = nas(*command, "--json")
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    assert answer["against"] == "mha"
    assert list(answer["metrics"]) == ["tiny-induction", "tiny-copying"]
    mha, uniform, _ = answer["rows"]
    assert len(mha["parts"]["tiny-copying"]["values"]) == 2
    lead = uniform["parts"]["tiny-induction"]["difference"]
    assert lead["verdict"] in {"better", "worse", "undecided"}
    with RunRecord([], "record.sqlite") as record:
        recorded = record.trainings("evaluate")
    again = nas(*command)
    assert "accuracy % (higher is better); tiny-induction, tiny-copying" in again.out
    assert "[12/12]" in again.err
    with RunRecord([], "record.sqlite") as record:
        assert record.trainings("evaluate") == recorded
    assert json.loads(nas(*command, "--json").out) == answer


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        ("evaluate gqa --tasks recall,bytes --data file:here", "for several tasks"),
        (
            "evaluate gqa --tasks recall,bytes --data a=f:b --data c=f:b",
            "found a, c; expected a text for each of recall, bytes",
        ),
        ("evaluate uniform --tasks copying --test", "has no test set"),
    ],
)
def test_arguments_are_refused_before_anything_is_trained(
    nas: Any, at_folder: Path, command: str, fact: str
) -> None:
    result = nas(*command.split(), *LOCAL)
    assert result.status == 2
    assert fact in result.err
    assert "[1/" not in result.err
    assert not list(at_folder.iterdir())


@pytest.mark.usefixtures("at_tasks")
def test_the_test_set_is_used_on_request_only(nas: Any) -> None:
    command = ("evaluate", "uniform", "--tasks", "tiny.yaml", *LOCAL, "--record", "record")
    held_out = json.loads(nas(*command, "--json").out)
    tested = json.loads(nas(*command, "--test", "--json").out)
    assert [held_out["test"], tested["test"]] == [False, True]
    scores = [answer["trained"][0]["metrics"] for answer in (held_out, tested)]
    assert scores[0] != scores[1]
    assert "test set" in nas(*command, "--test").out


def test_best_that_is_the_reference_is_named(nas: Any, at_tasks: Path) -> None:
    options = ("--gens", 1, "--pop", 1, "--run", "a", *LOCAL)
    assert nas("search", "--space", "quickstart", "--task", "tiny.yaml", *options).status == 0
    words = "a/best is mha: the best member of this run is the reference itself."
    assert words in nas("evaluate", "a/best", *LOCAL).err
    assert words in nas("export", "a/best", "-o", "best.py").err
    assert words not in nas("export", "mha", "-o", "mha.py").err


@pytest.mark.slow
def test_trainings_of_a_member_are_kept_in_its_run(
    nas: Any, at_tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--gens", 1, "--pop", 2, "--run", "a", "--algorithm", "random", *LOCAL)
    space = (ROOT / "search_spaces" / "quickstart.yaml").read_text()
    Path("timed.yaml").write_text(space.replace("[quality, macs]", "[quality, time_ms]"))
    nas("search", "--space", "timed.yaml", "--task", "tiny.yaml", *options)
    folder = at_tasks / "runs" / "a"
    monkeypatch.setattr(LocalEvaluator, "measure", refuse)  # the run's unit times are used
    explain = ("explain", "a/best", "--seeds", 2, *LOCAL, "--json")
    evaluate = ("evaluate", "uniform", "a/best", "--seeds", 2, *LOCAL, "--json")
    first = nas(*explain)
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    member = json.loads(nas("front", "a", "--json").out)["members"][0]
    explained = answer["mechanism"]
    assert (explained["id"], explained["trained"]["costs"]["time_ms"]) == (
        member["id"],
        member["objectives"]["time_ms"],
    )
    assert (answer["task"], len(explained["trained"]["values"])) == ("tiny", 2)
    with open_run(folder) as run:
        assert [*run.answers()] == [answer]
    assert nas("report", "a", "-o", "a.html").status == 0
    assert "Edits of " in Path("a.html").read_text()
    compared = json.loads(nas(*evaluate).out)  # under the run's task
    assert (compared["rows"][1]["id"], [*compared["tasks"]]) == (explained["id"], ["tiny"])
    with open_run(folder) as run:
        trained = run.trainings("explain")
        assert len(run.trainings("evaluate")) == 4
    assert len(trained) == len({(t.key, t.repeat) for t in trained}) >= 4
    monkeypatch.setattr(writer, "database_file", refuse)
    again = nas(*explain)
    assert again.status == 0
    assert explained["id"] in again.out
    assert again.err.count("cannot be kept") == 1  # said once, before the trainings
    with open_run(folder) as run:
        assert len(run.trainings("explain")) == len(trained)
    assert "nowhere" in nas("explain", "a/best", "--data", "imagefolder:nowhere", *LOCAL).err
