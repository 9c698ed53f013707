"""`nas front`: the JSON of docs/formats.md, and a table that says the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nas.genome import Genome
from nas.report.facts import RunFacts
from nas.report.front import answer, front_columns, next_commands, no_front, show_front
from nas.store import open_run

from .conftest import Printed, read

KEYS = {
    "run": str,
    "task": str,
    "seed": int,
    "objectives": list,
    "reference_point": list,
    "hypervolume": float,
    "counts": dict,
    "members": list,
}


def test_answer_has_the_stable_keys(recorded_run: Path, facts: RunFacts) -> None:
    with open_run(recorded_run) as run:
        data = json.loads(json.dumps(answer(run, facts), allow_nan=False))
    assert {key: type(data[key]) for key in KEYS} == KEYS
    assert set(data["objectives"][0]) == {"name", "direction", "unit"}
    assert set(data["counts"]) == {"proposed", "evaluated", "replayed", "rejected", "failed"}
    for member in data["members"]:
        assert {"id", "objectives", "genome", "formula"} <= member.keys()
        assert set(member["objectives"]) == {"accuracy", "macs"}
        Genome.from_dict(member["genome"])


def test_answer_adds_status_times_and_names(recorded_run: Path, facts: RunFacts) -> None:
    with open_run(recorded_run) as run:
        data = answer(run, facts)
    assert data["status"] == "finished"
    assert data["wall_seconds"] == facts.wall_seconds
    assert data["core_seconds"] == 3 * data["counts"]["evaluated"]
    assert data["hardware"] == list(facts.hardware)
    assert data["named"].keys() == data["dominates"].keys() == {m["id"] for m in data["members"]}


def test_table_has_a_row_for_each_member(facts: RunFacts, pipe: Printed) -> None:
    show_front(pipe.console, facts, "latest")
    for member in facts.members:
        row = next(line for line in pipe.lines if line.startswith(member.digest[:8]))
        assert f"{100 * member.objectives['accuracy']:.1f}" in row
        assert member.proposal.formula in row
        assert f"{member.objectives['macs'] / facts.standard.objectives['macs']:.2f}" in row


def test_table_says_what_to_type_next(facts: RunFacts, pipe: Printed) -> None:
    show_front(pipe.console, facts, "latest")
    for command in (
        "nas show latest/best",
        "nas export latest/best -o champion.py",
        "nas front latest --plot front.png",
    ):
        assert command in pipe.text
    assert "resume" not in pipe.text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_table_fits_the_terminal(facts: RunFacts, width: int) -> None:
    terminal = Printed(width)
    show_front(terminal.console, facts, "latest")
    assert max(map(len, terminal.lines)) <= width
    assert facts.members[0].digest[:8] in terminal.text
    assert "nas export latest/best -o champion.py" in terminal.text


def test_standard_errors_are_shown(make_run: Callable[..., Path], tmp_path: Path) -> None:
    facts = read(make_run(tmp_path, repeats=3, generations=1))
    pipe = Printed()
    show_front(pipe.console, facts, "example")
    assert " ± " in pipe.text
    assert "standard error of the mean over 3 trainings" in pipe.text


def test_a_stopped_run_can_be_resumed(make_run: Callable[..., Path], tmp_path: Path) -> None:
    facts = read(make_run(tmp_path, generations=1, is_finished=False))
    pipe = Printed()
    show_front(pipe.console, facts, "runs/x")
    assert "nas resume runs/x" in pipe.text


def test_without_mha_there_is_no_relative_column(facts: RunFacts) -> None:
    bare = dataclasses.replace(facts, names={})
    headers = [column.header for column in front_columns(bare)]
    assert "× mha" not in headers
    assert "× mha" in [column.header for column in front_columns(facts)]


@pytest.mark.parametrize(
    ("status", "words"),
    [("stopped", "nas resume x"), ("running", "look again"), ("finished", "See why")],
)
def test_no_front_says_why_and_what_to_do(facts: RunFacts, status: str, words: str) -> None:
    summary = dataclasses.replace(facts.summary, status=status)
    empty = dataclasses.replace(facts, members=(), summary=summary)
    sentence = no_front(empty, "x")
    assert words in sentence
    assert "1 diverged" in sentence


def test_another_hardware_is_told(facts: RunFacts, pipe: Printed) -> None:
    show_front(pipe.console, facts, "x")
    assert "hardware" not in pipe.text
    show_front(pipe.console, dataclasses.replace(facts, hardware=("a CPU", "a GPU")), "x")
    assert "different hardware, which rounds differently: a CPU, a GPU." in pipe.text


def test_what_to_type_is_quoted_and_says_where_the_runs_are(facts: RunFacts) -> None:
    stopped = dataclasses.replace(
        facts, summary=dataclasses.replace(facts.summary, status="stopped")
    )
    commands, _ = next_commands(stopped, "my runs/x")
    assert "nas show 'my runs/x/best'" in commands.cells
    assert "nas resume 'my runs/x'" in commands.cells
