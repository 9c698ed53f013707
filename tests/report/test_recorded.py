"""What a run recorded about one mechanism."""

from __future__ import annotations

from pathlib import Path

from nas.report.recorded import recorded_answer, trainings_of, trainings_table

from .conftest import read

# A run whose front is that of a longer target task.
WITH_TARGET = Path(__file__).parents[2] / "runs" / "example"


def test_trainings_under_a_target_task_are_shown_apart() -> None:
    view = read(WITH_TARGET)
    mechanism = view.by_digest["ff011de9df57b15c"]
    lines = trainings_table(view, trainings_of(view, mechanism)).lines()
    assert [line.plain.split()[:3] for line in lines[1:3]] == [
        ["vit-cifar10", "search", "40.8"],
        ["comparison", "search", "55.2"],
    ]
    entries = recorded_answer(view, mechanism)["trainings"]
    assert [(t["part"], t["task"]) for t in entries] == [
        ("search", "vit-cifar10"),
        ("target", "comparison"),
    ]
