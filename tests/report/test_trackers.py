"""The numbers of a search arrive in each tracker once; a tracker never holds a search."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nas.common.errors import NasWarning
from nas.report import trackers
from nas.report.trackers import Tracker
from nas.searching.listener import SearchResult
from nas.store import Counts, open_run
from tests.recorded_run import POPULATION, go_on, record_run


def end(tracker: Tracker, folder: Path) -> None:
    tracker.on_end(SearchResult("example", folder, "finished", 3, Counts(), 0.0, ""))


def hypervolumes(folder: Path) -> list[float]:
    with open_run(folder) as run:
        return [generation.hypervolume for generation in run.generations()]


def run_and_resume(name: str, tmp_path: Path) -> Path:
    """Record a run of three generations, and resume it, which repeats no generation."""
    tracker = Tracker(name)
    folder = record_run(tmp_path, listener=tracker)
    end(tracker, folder)
    again = Tracker(name)
    go_on(folder, listener=again)
    end(again, folder)
    return folder


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that a busy machine does not exceed by importing a tracker."""
    monkeypatch.setattr(trackers, "TIME_LIMIT", 300.0)


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of MLflow that accepts connections and never answers."""
    monkeypatch.setattr(trackers, "TIME_LIMIT", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


@pytest.mark.usefixtures("patience")
def test_mlflow_receives_each_generation_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    folder = run_and_resume("mlflow", tmp_path)
    [metric] = tmp_path.glob("mlruns/*/*/metrics/search/hypervolume")
    rows = [line.split() for line in metric.read_text().splitlines()]
    assert [float(value) for _, value, _ in rows] == pytest.approx(hypervolumes(folder))
    assert [int(step) for *_, step in rows] == [POPULATION * n for n in (1, 2, 3)]


@pytest.mark.usefixtures("patience")
def test_tensorboard_receives_each_generation_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = run_and_resume("tensorboard", tmp_path)
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    with open_run(folder) as run:
        generations = run.generations()
    for name, values in {
        "hypervolume": [generation.hypervolume for generation in generations],
        "best_accuracy": [generation.best for generation in generations],
        "front_size": [len(generation.front) for generation in generations],
    }.items():
        tensors = [event.tensor_proto.float_val[0] for event in events.Tensors(f"search/{name}")]
        assert tensors == pytest.approx(values)


@pytest.mark.slow
@pytest.mark.usefixtures("patience")
def test_wandb_receives_the_numbers_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    folder = run_and_resume("wandb", tmp_path)
    [first, _] = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert b"search/hypervolume" in first.read_bytes()
    assert len(hypervolumes(folder)) == 3


@pytest.mark.usefixtures("silent_server")
def test_a_search_ends_soon_after_its_last_generation(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    tracker = Tracker("mlflow")

    def searched() -> tuple[Path, float]:
        folder = record_run(tmp_path, listener=tracker)
        began = time.monotonic()
        end(tracker, folder)
        return folder, time.monotonic() - began

    # On a slow machine the warning may come during the search.
    with pytest.warns(NasWarning, match=r"^mlflow did not .*: no answer in 1 seconds "):
        folder, seconds = searched()
    assert seconds < 10
    assert len(hypervolumes(folder)) == 3
