"""`nas front`: the JSON and CSV of docs/formats.md, and a table that says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nas
from nas.genome import Genome
from nas.report.front import Front
from nas.report.run_view import RunView

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
COUNTS = {"proposed", "evaluated", "repeated", "replayed", "rejected", "failed", "stopped"}


def test_answer_has_the_stable_keys_state_times_and_names(
    recorded_run: Path, view: RunView
) -> None:
    found = nas.front("example", runs=recorded_run.parent).to_dict()
    data = json.loads(json.dumps(found, allow_nan=False))
    assert {key: type(data[key]) for key in KEYS} == KEYS
    assert set(data["objectives"][0]) == {"name", "direction", "unit"}
    assert set(data["counts"]) == COUNTS
    for member in data["members"]:
        assert {"id", "objectives", "genome", "formula"} <= member.keys()
        assert set(member["objectives"]) == {"accuracy", "macs"}
        Genome.from_dict(member["genome"])
    assert data["status"] == "finished"
    assert data["wall_seconds"] == view.wall_seconds
    assert data["core_seconds"] == 3 * (data["counts"]["evaluated"] + data["counts"]["repeated"])
    assert data["hardware"] == list(view.hardware)
    for entry, member in zip(data["members"], view.members, strict=True):
        assert entry["name"] == view.name_of(member)


def test_answer_has_each_member_with_every_number_in_full(example: RunView) -> None:
    found = Front(example).to_dict()["members"]
    assert [row["id"] for row in found] == [member.digest for member in example.members]
    assert [*Front(example).table["id"]] == [row["id"] for row in found]
    for row, member in zip(found, example.members, strict=True):
        assert row["accuracy_estimate"] == member.objectives["accuracy"]
        assert row["accuracy_error"] == member.errors["accuracy"]
        assert row["accuracy_score"] == member.scores["accuracy"]
        assert row["p_non_dominated"] == member.p
        assert row["seeds"] == len(member.trainings)
        assert {n: row[n] for n in member.proposal.costs} == member.proposal.costs
        assert row["formula"] == member.proposal.formula
        assert row["parents"].split() == list(member.proposal.parents)
        fresh = row["confirmed"].get("fresh")
        assert row["fresh_accuracy_mean"] == (fresh["mean"] if fresh else None)
        assert row["fresh_seeds"] == (len(fresh["values"]) if fresh else None)


def test_mechanisms_have_every_trained_one(example: RunView) -> None:
    found = Front(example).mechanisms.to_dict("records")
    assert [row["id"] for row in found] == [one.digest for one in example.trained.values()]
    members = {member.digest for member in example.members}
    assert {row["id"] for row in found if row["in_front"]} == members
    assert {row["id"] for row in found if row["status"] == "ok"} == {
        one.digest for one in example.candidates
    }
    assert {row["name"] for row in found} >= {"mha", "qana"}


def test_trainings_are_a_table_with_task_part_and_metrics(example: RunView) -> None:
    found = Front(example).trainings
    assert len(found) == len(example.trainings) + len(example.confirmations)
    assert {*found.part} == {"search", "fresh", "long"}
    assert found.groupby("part").task.nunique().to_dict() == {"search": 1, "fresh": 1, "long": 1}
    best = example.members[0]
    own = found[(found.id == best.digest) & (found.part == "search")]
    assert own.accuracy.mean() == pytest.approx(best.scores["accuracy"])
