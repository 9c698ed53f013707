"""Results and lineage, where there is much of it and where there is little."""

from __future__ import annotations

from pathlib import Path

from nas.report.history import history_of, trainings_table
from nas.store import open_run

# A run whose front is that of a longer target task.
WITH_TARGET = Path(__file__).parents[2] / "runs" / "example"


def test_each_ancestor_is_shown_once(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        by_digest = {proposal.digest: proposal for proposal in reversed(run.proposals())}
    found = max((history_of(recorded_run, d) for d in by_digest), key=lambda h: len(h.mechanisms))
    digests = [mechanism.digest for mechanism in found.mechanisms]
    assert len(digests) == len({*digests}) > 2
    parents = {parent for digest in digests for parent in by_digest[digest].parents}
    assert {*digests[1:]} == parents - {digests[0]}
    assert digests[1] == by_digest[digests[0]].parents[0]
    assert len(found.lineage.lines()) == len(digests) + 1


def test_trainings_under_a_target_task_are_shown_apart() -> None:
    found = history_of(WITH_TARGET, "ff011de9df57b15c")
    lines = [line.plain.split() for line in trainings_table(found.view, found.trainings).lines()]
    assert [line[:3] for line in lines[1:3]] == [
        ["vit-cifar10", "search", "40.8"],
        ["comparison", "search", "55.2"],
    ]
    entries = found.to_dict()["trainings"]
    assert [(t["part"], t["task"]) for t in entries] == [
        ("search", "vit-cifar10"),
        ("target", "comparison"),
    ]
