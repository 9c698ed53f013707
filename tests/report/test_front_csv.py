"""`nas front --csv`: the front's numbers in full, a row a mechanism, safe in a spreadsheet."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

from nas.report.facts import RunFacts, gather
from nas.report.front_csv import front_csv
from nas.store import open_run

EXAMPLE = Path(__file__).resolve().parents[2] / "runs" / "example"


@pytest.fixture(scope="module")
def example() -> RunFacts:
    with open_run(EXAMPLE) as run:
        return gather(run)


def rows(facts: RunFacts, **options: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(front_csv(facts, **options))))


def test_a_row_a_member_with_every_number_in_full(example: RunFacts) -> None:
    found = rows(example)
    assert [row["id"] for row in found] == [member.digest for member in example.members]
    for row, member in zip(found, example.members, strict=True):
        assert float(row["accuracy_estimate_fraction"]) == member.objectives["accuracy"]
        assert float(row["accuracy_error_fraction"]) == member.errors["accuracy"]
        assert float(row["accuracy_score_fraction"]) == member.scores["accuracy"]
        assert float(row["p_non_dominated"]) == member.p
        assert int(row["seeds"]) == member.trainings
        assert {n: float(row[n]) for n in member.proposal.costs} == member.proposal.costs
        assert row["formula"] == member.proposal.formula
        assert row["parents"].split() == list(member.proposal.parents)
        fresh = example.confirmed(member).get("fresh")
        assert row["fresh_accuracy_mean_fraction"] == (str(fresh["mean"]) if fresh else "")
        assert row["fresh_seeds"] == (str(len(fresh["values"])) if fresh else "")


def test_all_are_those_that_ended_well(example: RunFacts) -> None:
    found = rows(example, every=True)
    assert [row["id"] for row in found] == [one.digest for one in example.candidates]
    members = {member.digest for member in example.members}
    assert {row["id"] for row in found if row["in_front"] == "1"} == members
    assert {row["name"] for row in found} >= {"mha", "qana"}


@pytest.mark.parametrize(
    "text", ["=HYPERLINK(1)", "+1", "-1", "@SUM(1)", "\t=1", "\x1b]0;", "a\n=1"]
)
def test_no_cell_is_a_formula_of_a_spreadsheet(example: RunFacts, text: str) -> None:
    first = example.members[0]
    changed = dataclasses.replace(first, proposal=dataclasses.replace(first.proposal, formula=text))
    facts = dataclasses.replace(
        example, members=(changed,), names={first.proposal.key or "": (text,)}
    )
    (row,) = rows(facts)
    safe = text.replace("\x1b", "\\u001b")
    safe = f"'{safe}" if safe[0] in "=+-@\t" else safe
    assert row["formula"] == row["name"] == safe
    assert not [cell for cell in row.values() if cell.startswith(("=", "+", "-", "@"))]


def test_nothing_is_estimated_before_a_generation_has_ended(facts: RunFacts) -> None:
    plain = dataclasses.replace(facts.members[0], p=None, errors={})
    (row,) = rows(dataclasses.replace(facts, members=(plain,)))
    assert row["accuracy_estimate_fraction"] == row["accuracy_error_fraction"] == ""
    assert float(row["accuracy_score_fraction"]) == plain.scores["accuracy"]
