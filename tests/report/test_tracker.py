"""The numbers of a search arrive in Weights & Biases and in MLflow, once each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nas.report.events import Tracker
from nas.store import open_run
from tests.recorded_run import MakeRun, go_on


def recorded(folder: Path) -> list[float]:
    with open_run(folder) as run:
        return [generation.hypervolume for generation in run.generations()]


def test_mlflow_receives_each_generation_once(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path}/mlruns")
    with mlflow.start_run() as active:
        folder = make_run(tmp_path, listener=Tracker.named("mlflow", pytest.fail))
        go_on(
            folder, listener=Tracker.named("mlflow", pytest.fail)
        )  # the recorded generations are not repeated
    found = mlflow.MlflowClient().get_metric_history(active.info.run_id, "search/hypervolume")
    assert [one.value for one in found] == pytest.approx(recorded(folder))
    assert [one.step for one in found] == sorted({one.step for one in found})


@pytest.mark.slow
def test_wandb_receives_the_numbers_offline(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb: Any = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = make_run(tmp_path, listener=Tracker.named("wandb", pytest.fail))
    summary = dict(wandb.run.summary)
    wandb.run.finish()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert summary["search/hypervolume"] == pytest.approx(recorded(folder)[-1])
    assert summary["search/failures"] == 1


def test_a_tracker_that_fails_does_not_end_the_search(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    said: list[str] = []
    monkeypatch.setattr(mlflow, "log_metrics", lambda *_, **__: 1 / 0)
    folder = make_run(tmp_path, listener=Tracker.named("mlflow", said.append))
    assert len(recorded(folder)) == len(said) == 3
    assert said[0] == "mlflow did not accept the numbers of a generation: division by zero"
