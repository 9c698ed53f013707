"""Trained weights of a run are those of the model that was trained, or an error."""

from __future__ import annotations

import json
import os
import resource
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


def test_missing_damaged_and_huge_files_raise_an_error(
    tmp_path: Path, task: ModelTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"{}")
    os.mkfifo(tmp_path / "pipe.safetensors")
    for name in ("none.safetensors", "broken.safetensors", "pipe.safetensors"):
        with pytest.raises(RunError, match=f"{name}: no weights can be read"):
            read_weights(tmp_path / name, GENOME, task)
    path = saved(tmp_path, task, GENOME)
    monkeypatch.setattr("nas.store.weights.MAX_HEADER_BYTES", 99)
    with pytest.raises(RunError, match=r"its header has .* bytes"):
        read_weights(path, GENOME, task)
    monkeypatch.setattr("nas.store.weights.MAX_BYTES", 99)
    with pytest.raises(RunError, match="bytes; expected at most 99"):
        read_weights(path, GENOME, task)


@pytest.mark.parametrize("spare", [2**27, 2**29 + 2**28])
def test_weights_too_large_for_the_memory_raise_an_error(
    tmp_path: Path, task: ModelTask, spare: int
) -> None:
    path, size = tmp_path / "run.safetensors", 2**29
    tensor = {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}
    header = json.dumps({"layers.0.wq.weight": tensor}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + size)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + spare
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        with pytest.raises(RunError, match="no weights can be read"):
            read_weights(path, GENOME, task)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda t: t.update({"layers.1.wq.weight": torch.ones(3, 16)}), r"layers\.1.*is \[3, 16\]"),
        (lambda t: t["layers.0.wq.weight"][0].fill_(float("nan")), "wq.weight contains NaN"),
        (lambda t: t["layers.0.wq.weight"][0].fill_(float("-inf")), "or infinity"),
        (lambda t: t.update({"layers.0.wq.weight": torch.ones(16, 16).int()}), "of torch.int32"),
        (lambda t: t.pop("layers.0.wk.weight"), r"layers\.0\.wk\.weight is missing"),
        (lambda t: t.update({"layers.0.unknown": torch.ones(1)}), "layers.0.unknown is surplus"),
        (lambda t: t.update({"layers.2.wq.weight": torch.ones(1)}), "wq.weight is surplus"),
        (lambda t: t.update({"head": torch.ones(1)}), "head is surplus"),
        (lambda t: [t.pop(key) for key in [*t] if "layers.1" in key], r"layers\.1.* is missing"),
        (lambda t: [t.update({f"x{key}": t.pop(key)}) for key in [*t]], "is missing"),
    ],
    ids=[
        "shape",
        "nan",
        "inf",
        "dtype",
        "missing",
        "unknown",
        "deeper",
        "other",
        "layer",
        "renamed",
    ],
)
def test_weights_of_another_model_raise_an_error(
    tmp_path: Path, task: ModelTask, edit: Edit, words: str
) -> None:
    path = saved(tmp_path, task, GENOME, edit)
    with pytest.raises(RunError, match=f"its weights are not those of the mechanism: .*{words}"):
        read_weights(path, GENOME, task)
