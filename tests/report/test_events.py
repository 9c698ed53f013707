"""Event files, read back as TensorBoard reads them: nothing repeated, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nas.report.events import write_events
from nas.store import open_run

pytest.importorskip("tensorboard")


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    return [(one.step, one.value) for one in read(folder).Scalars(tag)]


def test_search_scalars_after_each_generation(recorded_run: Path, tmp_path: Path) -> None:
    own, written = write_events(recorded_run, tmp_path)
    assert own == tmp_path / "example"
    assert written == len([*own.rglob("events.out.tfevents.*")])
    with open_run(recorded_run) as run:
        generations, total = run.generations(), len(run.trainings())
    found = scalars(own, "search/hypervolume")
    assert found[-1][0] == total
    assert [step for step, _ in found] == sorted({step for step, _ in found})
    assert [v for _, v in found] == pytest.approx([g.hypervolume for g in generations])
    best = [v for _, v in scalars(own, "search/best_accuracy")]
    assert best == pytest.approx([g.best for g in generations])
    sizes = [v for _, v in scalars(own, "search/front_size")]
    assert sizes == [len(g.front) for g in generations]
    assert [v for _, v in scalars(own, "search/failures")] == [1, 1, 1]
