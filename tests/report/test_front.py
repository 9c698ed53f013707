"""`nas front`: the JSON of docs/formats.md, and a table that says the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import nas
from nas.genome import Genome
from nas.report.facts import RunFacts
from nas.report.front import front_columns, next_commands, no_front, show_front

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


COUNTS = ("proposed", "evaluated", "repeated", "replayed", "rejected", "failed")


def shown(facts: RunFacts, label: str = "latest", width: int | None = None) -> Printed:
    printed = Printed(width)
    show_front(printed.console, facts, label)
    return printed


def with_status(facts: RunFacts, status: str) -> RunFacts:
    summary = dataclasses.replace(facts.summary, status=status)
    return dataclasses.replace(facts, summary=summary)


def test_answer_has_the_stable_keys_status_times_and_names(
    recorded_run: Path, facts: RunFacts
) -> None:
    data = json.loads(json.dumps(nas.front("example", runs=recorded_run.parent), allow_nan=False))
    assert {key: type(data[key]) for key in KEYS} == KEYS
    assert set(data["objectives"][0]) == {"name", "direction", "unit"}
    assert set(data["counts"]) == {*COUNTS}
    for member in data["members"]:
        assert {"id", "objectives", "genome", "formula"} <= member.keys()
        assert set(member["objectives"]) == {"accuracy", "macs"}
        Genome.from_dict(member["genome"])
    assert data["status"] == "finished"
    assert data["wall_seconds"] == facts.wall_seconds
    assert data["core_seconds"] == 3 * data["counts"]["evaluated"]
    assert data["hardware"] == list(facts.hardware)
    assert data["named"].keys() == data["dominates"].keys() == {m["id"] for m in data["members"]}


def test_table_has_a_row_for_each_member_and_what_to_type_next(facts: RunFacts) -> None:
    printed = shown(facts)
    for member in facts.members:
        row = next(line for line in printed.lines if line.startswith(member.digest[:8]))
        assert f"{100 * member.objectives['accuracy']:.1f}" in row
        assert member.proposal.formula in row
        assert f"{member.objectives['macs'] / facts.standard.objectives['macs']:.2f}" in row
    for command in (
        "nas show latest/best",
        "nas export latest/best -o champion.py",
        "nas front latest --plot front.png",
    ):
        assert command in printed.text
    assert "resume" not in printed.text
    assert "hardware" not in printed.text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_table_fits_the_terminal(facts: RunFacts, width: int) -> None:
    terminal = shown(facts, width=width)
    assert max(map(len, terminal.lines)) <= width
    assert facts.members[0].digest[:8] in terminal.text
    assert "nas export latest/best -o champion.py" in terminal.text


def test_standard_errors_and_other_hardware_are_told(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    facts = read(make_run(tmp_path, repeats=3, generations=1))
    printed = shown(dataclasses.replace(facts, hardware=("a CPU", "a GPU")))
    assert " ± " in printed.text
    assert "standard error of the mean over 3 trainings" in printed.text
    assert "different hardware, which rounds differently: a CPU, a GPU." in printed.text


def test_without_mha_there_is_no_relative_column(facts: RunFacts) -> None:
    for found, has_one in ((facts, True), (dataclasses.replace(facts, names={}), False)):
        assert ("× mha" in [column.header for column in front_columns(found)]) == has_one


@pytest.mark.parametrize(
    ("status", "words"),
    [("stopped", "nas resume x"), ("running", "look again"), ("finished", "See why")],
)
def test_no_front_says_why_and_what_to_do(facts: RunFacts, status: str, words: str) -> None:
    sentence = no_front(dataclasses.replace(with_status(facts, status), members=()), "x")
    assert words in sentence
    assert "1 diverged" in sentence


def test_what_to_type_is_quoted_and_says_where_the_runs_are(facts: RunFacts) -> None:
    commands, _ = next_commands(with_status(facts, "stopped"), "my runs/x")
    assert "nas show 'my runs/x/best'" in commands.cells
    assert "nas resume 'my runs/x'" in commands.cells
