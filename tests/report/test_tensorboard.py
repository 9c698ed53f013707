"""TensorBoard's event files have the numbers of each generation once."""

from __future__ import annotations

from pathlib import Path

import pytest

from nas.report.tensorboard import TensorBoard
from nas.searching.listener import SearchResult
from nas.store import Counts, open_run
from tests.recorded_run import POPULATION, go_on, record_run


def end(listener: TensorBoard, folder: Path) -> None:
    listener.on_end(SearchResult("example", folder, "finished", 3, Counts(), 0.0, ""))


def test_each_generation_is_written_once(tmp_path: Path) -> None:
    """A run of three generations is resumed, which repeats no generation."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first, second = TensorBoard(), TensorBoard()
    folder = record_run(tmp_path, listener=first)
    end(first, folder)
    go_on(folder, listener=second)
    end(second, folder)
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    with open_run(folder) as run:
        generations = run.generations()
    for name, values in {
        "hypervolume": [generation.hypervolume for generation in generations],
        "best_accuracy": [generation.best for generation in generations],
        "front_size": [len(generation.front) for generation in generations],
    }.items():
        tensors = events.Tensors(f"search/{name}")
        assert [event.step for event in tensors] == [POPULATION * n for n in (1, 2, 3)]
        assert [event.tensor_proto.float_val[0] for event in tensors] == pytest.approx(values)
