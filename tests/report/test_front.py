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
    assert data["core_seconds"] == 3 * (data["counts"]["evaluated"] + data["counts"]["repeated"])
    assert data["hardware"] == list(facts.hardware)
    assert data["named"].keys() == data["dominates"].keys() == {m["id"] for m in data["members"]}
    assert {one: list(found) for one, found in data["p_dominates"].items()} == data["dominates"]


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
    assert "standard error of an estimate" in printed.text
    assert "different hardware, which rounds differently: a CPU, a GPU." in printed.text


def test_estimates_stand_beside_scores_seeds_and_probability(facts: RunFacts) -> None:
    cells = {column.header: column.cells for column in front_columns(facts)}
    assert list(cells)[:3] == ["id", "accuracy %", "score"]
    for i, member in enumerate(facts.members):
        estimate, error = member.objectives["accuracy"], member.errors["accuracy"]
        assert cells["accuracy %"][i] == f"{100 * estimate:.1f} ± {100 * error:.1f}"
        assert cells["score"][i] == f"{100 * member.scores['accuracy']:.1f}"
        assert cells["seeds"][i] == str(member.trainings)
        assert cells["P"][i] == f"{member.p:.2f}"
    assert max(candidate.trainings for candidate in facts.candidates) == 2
    narrow = next(row for row in shown(facts, width=90).lines if row.startswith("id ")).split()
    assert "score" in narrow
    assert not {"seeds", "P"} & {*narrow}


def test_a_mark_asks_for_a_lead_that_is_surely_more_than_the_errors(facts: RunFacts) -> None:
    member = next(m for m in facts.members if facts.beaten_by(m) and not facts.names_of(m))
    (name, p), *_ = facts.beaten_by(member).items()
    other = dict(facts.named)[next(n for n, _ in facts.named if name in n.split(" = "))]

    def marks(error: float) -> tuple[float, str]:
        found = [dataclasses.replace(c, errors={"accuracy": error}) for c in (member, other)]
        alone = dataclasses.replace(facts, candidates=tuple(found), members=tuple(found[:1]))
        columns = {column.header: column.cells for column in front_columns(alone)}
        return alone.beaten_by(found[0])[name], columns["named"][0]

    lead = member.objectives["accuracy"] - other.objectives["accuracy"]
    for errors, expected in ((2.0, 0.638), (1.0, 0.760), (0.5, 0.921)):
        p, mark = marks(errors * lead)
        assert p == pytest.approx(expected, abs=1e-3)
        assert mark.startswith(f"> {name}") == (p >= 0.8)


def test_before_anything_is_estimated_scores_alone_are_shown_and_said_to_be_lucky(
    facts: RunFacts,
) -> None:
    measured = [
        dataclasses.replace(c, objectives={**c.objectives, **c.scores}, errors={}, p=None)
        for c in facts.candidates
    ]
    early = dataclasses.replace(facts, candidates=tuple(measured), members=tuple(measured[-2:]))
    headers = [column.header for column in front_columns(early) if any(column.cells)]
    assert not {"score", "seeds", "P"} & {*headers}
    printed = shown(early)
    assert "nothing estimated yet: the best of many is lucky" in printed.text
    assert "> " not in printed.text


def test_where_nothing_was_trained_twice_that_is_said(facts: RunFacts) -> None:
    once = [dataclasses.replace(c, trainings=1) for c in facts.candidates]
    words = "Nothing was trained twice"
    assert words in shown(dataclasses.replace(facts, candidates=tuple(once))).text
    assert words not in shown(facts).text


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


def test_of_several_tasks_the_one_that_limits_a_member_is_named(facts: RunFacts) -> None:
    regrets = ({"a.regret": 0.2, "b.regret": -0.1}, {"a.regret": 0.1, "b.regret": 0.3})
    members = tuple(
        dataclasses.replace(member, scores={**member.scores, **regrets[i % 2]})
        for i, member in enumerate(facts.members)
    )
    columns = front_columns(dataclasses.replace(facts, members=members))
    (column,) = (column for column in columns if column.header == "limited by")
    assert list(column.cells[:2]) == ["a", "b"]
    assert "limited by" not in shown(facts).text
