"""Faults of a run folder are reported, and an undamaged run has none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nas.api.doctor import check_run
from nas.store import open_run
from nas.store.frozen import load_frozen_task
from nas.store.weights import weights_path
from nas.training.candidate import attention_weights, build_model


@pytest.fixture
def folder(recorded_run: Path, tmp_path: Path) -> Path:
    """A copy of an undamaged run, with the weights of its front."""
    own = shutil.copytree(recorded_run, tmp_path / "runs" / "example")
    with open_run(own) as run:
        (own / "weights").mkdir()
        task = load_frozen_task(run.setup.front_task, data="digits").main
        data = task.load()
        for member in run.front():
            model = build_model(task.resolve(member.proposal.genome), task, data, seed=0)
            weights_path(own, member.key).write_bytes(attention_weights(model))
    return own


def test_undamaged_run_has_no_faults(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert check_run(folder) == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_missing_weights_and_temporary_folder_are_named(folder: Path) -> None:
    lost, spoilt, other, *_ = sorted((folder / "weights").iterdir())
    lost.unlink()
    spoilt.write_bytes(b"none")
    tensors = load_file(other)
    save_file(tensors | {"layers.0.wo.bias": tensors["layers.0.wo.bias"] * torch.nan}, other)
    found = check_run(folder)
    for words in (
        f"{lost.name}: no weights can be read",
        f"{spoilt.name}: no weights can be read",
        f"{other.name}: its weights are not those of the mechanism: layers.0.wo.bias contains NaN",
    ):
        assert sum(words in fault for fault in found) == 1
    assert len(found) == 3
