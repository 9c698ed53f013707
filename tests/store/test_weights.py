"""Trained weights of a run are those of the model that was trained, or an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save_file

from nas.common.errors import RunError
from nas.genome import Genome, Placement, Rest
from nas.genome.mechanisms import MECHANISMS
from nas.store.weights import read_weights
from nas.tasks import ModelTask, load_task
from nas.training.candidate import attention_weights, build_model

GENOME = MECHANISMS["qana"].genome
Edit = Callable[[dict[str, torch.Tensor]], Any]


@pytest.fixture(scope="module")
def task() -> ModelTask:
    small = load_task("vit-cifar10", data="digits", overrides={"depth": 2, "width": 16, "heads": 2})
    assert isinstance(small, ModelTask)
    return small


def saved(folder: Path, task: ModelTask, genome: Genome, edit: Edit = lambda _: None) -> Path:
    """The file that a run saves for a task's model."""
    model = build_model(task.resolve(genome), task, task.load(), seed=0)
    tensors = load(attention_weights(model))
    edit(tensors)
    save_file(tensors, folder / "run.safetensors")
    return folder / "run.safetensors"


@pytest.mark.parametrize(
    "placement", [Placement(), Placement(every=2, offset=1, rest=Rest(window=4))], ids=str
)
def test_weights_of_every_layer_are_read(
    tmp_path: Path, task: ModelTask, placement: Placement
) -> None:
    genome = replace(GENOME, placement=placement)
    model: Any = build_model(task.resolve(genome), task, task.load(), seed=0)
    layers = read_weights(saved(tmp_path, task, genome), genome, task)
    for state, block in zip(layers, model.attentions(), strict=True):
        expected = block.state_dict()
        assert list(state) == list(expected)
        assert all(torch.equal(state[name], expected[name]) for name in state)


def test_missing_and_damaged_files_raise_an_error(tmp_path: Path, task: ModelTask) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"{}")
    for name in ("none.safetensors", "broken.safetensors"):
        with pytest.raises(RunError, match=f"{name}: no weights can be read"):
            read_weights(tmp_path / name, GENOME, task)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda t: t.update({"layers.1.wq.weight": torch.ones(3, 16)}), "mismatch for layers.1.wq"),
        (lambda t: t["layers.0.wq.weight"][0].fill_(float("-inf")), "wq.weight contains NaN"),
        (lambda t: t.pop("layers.0.wk.weight"), r"Missing key.*layers\.0\.wk\.weight"),
        (lambda t: t.update({"layers.2.wq.weight": torch.ones(1)}), "Unexpected key"),
    ],
    ids=["shape", "inf", "missing", "deeper"],
)
def test_weights_of_another_model_raise_an_error(
    tmp_path: Path, task: ModelTask, edit: Edit, words: str
) -> None:
    path = saved(tmp_path, task, GENOME, edit)
    with pytest.raises(RunError, match=f"its weights are .*: .*{words}"):
        read_weights(path, GENOME, task)
