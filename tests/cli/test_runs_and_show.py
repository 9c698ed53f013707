"""`nas front`, `nas show`, `nas runs` and `nas mechanisms` from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nas.mechanisms import MECHANISMS
from nas.store import Document, RunSetup, create_run, open_run


def test_front_is_of_the_latest_run_by_default(nas: Any, at_runs: Path) -> None:
    result = nas("front")
    assert (result.status, result.err) == (0, "")
    assert result.out == nas("front", "latest").out
    assert result.out.startswith("run example · space attention_v2")
    assert "nas show latest/best" in result.out
    assert "\x1b" not in result.out


@pytest.mark.parametrize("run", ["example", "latest", "runs/example", "runs/example/run.sqlite"])
def test_front_json_of_a_run_by_name_or_path(nas: Any, at_runs: Path, run: str) -> None:
    result = nas("front", run, "--json")
    assert (result.status, result.err) == (0, "")
    assert json.loads(result.out)["run"] == "example"


def test_front_plots(nas: Any, at_runs: Path, tmp_path: Path) -> None:
    result = nas("front", "example", "--json", "--plot", str(tmp_path / "front.png"))
    assert result.status == 0
    json.loads(result.out)
    assert "front.png" in result.err
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")


def test_front_refuses_another_picture_before_anything_else(nas: Any, at_runs: Path) -> None:
    result = nas("front", "example", "--plot", "front.gif")
    assert result.status == 2
    assert result.out == ""
    assert "'.gif'" in result.err


def test_an_empty_front_is_1_with_a_sentence(
    nas: Any, recorded_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_empty_run(recorded_run)
    result = nas("front", "empty")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("nas: run 'empty' has no front: no training has ended well yet.")
    assert "nas resume empty" in result.err
    answer = nas("front", "empty", "--json")
    assert answer.status == 1
    assert json.loads(answer.out)["members"] == []


def test_runs_when_there_are_none(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = nas("runs")
    assert result.status == 0
    assert "nas search" in result.out
    assert json.loads(nas("runs", "--json").out) == {"runs": [], "problems": []}
    assert nas("front").status == 2


def test_runs_names_what_cannot_be_read(
    nas: Any,
    make_run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_run(tmp_path / "runs", name="good", generations=1)
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "run.sqlite").write_bytes(b"no database" * 100)
    monkeypatch.chdir(tmp_path)
    result = nas("runs")
    assert result.status == 0
    assert "good" in result.out
    assert "bad" in result.err
    answer = json.loads(nas("runs", "--json").out)
    assert [run["run"] for run in answer["runs"]] == ["good"]
    assert len(answer["problems"]) == 1


@pytest.mark.parametrize("source", ["mha", "example/best", "latest/knee", "example/cheapest"])
def test_show_answers_for_every_kind_of_source(nas: Any, at_runs: Path, source: str) -> None:
    text = nas("show", source)
    assert (text.status, text.err) == (0, "")
    answer = json.loads(nas("show", source, "--json").out)
    assert answer["formula"] in text.out
    assert answer["source"] in text.out + "\n"
    assert nas("show", source, "--source").out == answer["source"]


def test_show_reads_a_genome_file_at_the_sizes_asked_for(nas: Any, tmp_path: Path) -> None:
    path = tmp_path / "genome.json"
    path.write_text(MECHANISMS["champion_2025"].genome.to_json())
    sizes = ("--dim", "32", "--heads", "2", "--tokens", "10")
    answer = json.loads(nas("show", str(path), "--json", *sizes).out)
    assert answer["mechanisms"] == ["champion_2025"]
    assert answer["sizes"] == {"dim": 32, "heads": 2, "tokens": 10, "qkv_bias": False}


def test_show_of_an_illegal_genome_is_1(nas: Any, tmp_path: Path) -> None:
    path = tmp_path / "genome.json"
    path.write_text('{"graph_def": [{"op": "softmax", "inputs": ["q"]}]}')
    result = nas("show", str(path))
    assert (result.status, result.out) == (1, "")
    assert "nas validate" in result.err


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("champion", "did you mean 'champion_2025'"),
        ("missing.json", "no such file"),
        ("example/zz", "'zz' names no member"),
        ("nowhere/best", "no such run"),
    ],
)
def test_show_of_nothing_is_2(nas: Any, at_runs: Path, source: str, words: str) -> None:
    result = nas("show", source)
    assert (result.status, result.out) == (2, "")
    assert words in result.err


def test_show_source_needs_a_size_at_which_it_exists(nas: Any) -> None:
    result = nas("show", "lsqa", "--heads", "2", "--source")
    assert (result.status, result.out) == (2, "")
    assert "does not exist at these sizes" in result.err


def test_mechanisms(nas: Any) -> None:
    result = nas("mechanisms")
    assert (result.status, result.err) == (0, "")
    assert all(f"\n{name} " in result.out for name in MECHANISMS)
    answer = json.loads(nas("mechanisms", "--dim", "32", "--json").out)
    assert [item["name"] for item in answer["mechanisms"]] == list(MECHANISMS)
    assert answer["sizes"]["dim"] == 32


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_explains_one(nas: Any, name: str) -> None:
    result = nas("mechanisms", name, "--heads", "8")
    assert (result.status, result.err) == (0, "")
    answer = json.loads(nas("mechanisms", name, "--heads", "8", "--json").out)
    assert result.out.startswith(f"{name}   {answer['paper']}\n")
    assert answer["reading"] in result.out
    assert answer["formula"] in result.out
    assert answer["sizes"]["heads"] == 8
    assert answer["costs"]["macs"] > 0


def test_mechanisms_says_why_one_has_no_costs(nas: Any) -> None:
    result = nas("mechanisms", "lsqa", "--heads", "2")
    assert result.status == 0
    assert "It does not exist at these sizes: 3/4 of 2 heads" in result.out


def test_mechanisms_of_another_name_is_2(nas: Any) -> None:
    result = nas("mechanisms", "champion")
    assert (result.status, result.out) == (2, "")
    assert "did you mean 'champion_2025'" in result.err


def make_empty_run(like: Path) -> None:
    with open_run(like) as run:
        setup: RunSetup = run.setup
        (past,) = run.sessions()
    assert isinstance(setup.space, Document)
    create_run(Path("runs"), setup, past.session, name="empty").close()
