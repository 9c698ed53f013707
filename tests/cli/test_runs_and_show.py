"""`nas front`, `nas show`, `nas runs` and `nas mechanisms`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.common.errors import NasError
from nas.store import create_run, open_run, open_writer, this_session
from tests.recorded_run import record_run


def test_front_finds_a_run_by_default_name_or_path(nas: Any, at_runs: Path) -> None:
    result = nas("front")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("run example · space attention_v2")
    assert "nas show latest/best" in result.out
    assert "\x1b" not in result.out
    answers = set()
    for run in ((), "example", "latest", "runs/example", "runs/example/run.sqlite"):
        result = nas("front", *([run] if run else []), "--json")
        assert (result.status, result.err) == (0, "")
        answers.add(result.out)
    (answer,) = answers
    assert json.loads(answer)["run"] == "example"


@pytest.mark.usefixtures("at_folder")
def test_empty_front_exits_with_1(nas: Any, recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        create_run(Path("runs"), run.setup, this_session("nas search"), name="empty").close()
    result = nas("front", "empty")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("nas: run 'empty' has no front: no training has ended well yet.")
    assert "nas resume empty" in result.err
    answer = nas("front", "empty", "--json")
    assert answer.status == 1
    assert json.loads(answer.out)["members"] == []


def test_runs_lists_each_run_and_names_unreadable_ones(nas: Any, at_folder: Path) -> None:
    record_run(at_folder / "runs", name="one", generations=1)
    two = record_run(at_folder / "runs", name="two", generations=2, is_finished=False)
    with pytest.raises(NasError), open_writer(two, this_session("nas resume")):
        raise NasError("the reason.")
    (at_folder / "runs" / "bad").mkdir()
    (at_folder / "runs" / "bad" / "run.sqlite").write_bytes(b"no database" * 100)
    result = nas("runs")
    assert result.status == 0
    lines = [line.split() for line in result.out.splitlines()]
    assert [line[:2] for line in lines[1:3]] == [["one", "finished"], ["two", "stopped"]]
    assert result.out.splitlines()[3:] == ["two stopped: the reason."]
    assert ("1/1" in lines[1], "2/2" in lines[2]) == (True, True)
    assert "bad" in result.err
    answer = json.loads(nas("runs", "--json").out)
    assert [run["run"] for run in answer["runs"]] == ["one", "two"]
    assert answer["runs"][0]["failed"] == 1
    assert len(answer["problems"]) == 1


@pytest.mark.parametrize("source", ["mha", "latest/knee"])
def test_show_of_every_kind_of_source(nas: Any, at_runs: Path, source: str) -> None:
    text = nas("show", source)
    assert (text.status, text.err) == (0, "")
    answer = json.loads(nas("show", source, "--json").out)
    assert answer["formula"] in text.out
    assert answer["source"] in text.out + "\n"
    assert nas("show", source, "--source").out == answer["source"]


def test_show_of_an_illegal_genome_exits_with_1(nas: Any, tmp_path: Path) -> None:
    path = tmp_path / "genome.json"
    path.write_text('{"graph_def": [{"op": "softmax", "inputs": ["q"]}]}')
    result = nas("show", str(path))
    assert (result.status, result.out) == (1, "")
    assert "nas validate" in result.err


@pytest.mark.parametrize("name", ["mha", "qana"])
def test_mechanism_is_explained(nas: Any, name: str) -> None:
    answer = json.loads(nas("mechanisms", "--heads", "8", "--json").out)
    assert answer["sizes"]["heads"] == 8
    (known,) = (row for row in answer["mechanisms"] if row["name"] == name)
    assert known["macs"] > 0
    result = nas("show", name)
    assert (result.status, result.err) == (0, "")
    assert all(known[key] in result.out for key in ("paper", "reading", "formula", "digest"))
