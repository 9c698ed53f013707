"""Trained weights of one layer are read from a run's file and saved for an exported class."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import nas
from nas.common.errors import ExportError
from nas.compiler import build_attention
from nas.exporting import (
    EXPORTS,
    ExportRequest,
    Provenance,
    read_weights,
    save_weights,
)
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS

GENOME = MECHANISMS["qana"].genome
Edit = Callable[[dict[str, torch.Tensor]], Any]


def saved(folder: Path, edit: Edit | None = None) -> tuple[Path, list[torch.nn.Module]]:
    """The file that a run saves for a model whose two layers hold the mechanism."""
    layers = [build_attention(GENOME, 16, 2) for _ in range(2)]
    tensors = {
        f"layers.{i}.{name}": tensor
        for i, layer in enumerate(layers)
        for name, tensor in layer.state_dict().items()
    }
    if edit is not None:
        edit(tensors)
    save_file(tensors, folder / "run.safetensors", metadata={"run": "a run"})
    return folder / "run.safetensors", layers


def request(path: Path, **options: Any) -> ExportRequest:
    layers, _ = read_weights(path)
    return ExportRequest(GENOME, 16, 2, Provenance("x"), layer=1, weights=layers, **options)


@pytest.mark.parametrize("is_fast", [False, True])
def test_saved_weights_load_into_the_exported_class(tmp_path: Path, is_fast: bool) -> None:
    path, layers = saved(tmp_path)
    target = tmp_path / "champion.safetensors"
    save_weights(request(path), read_weights(path)[1], target)
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(EXPORTS.get("py").content(request(path, is_fast=is_fast)), scope)
    block = scope["Attention"]()
    block.load_state_dict(load_file(target))
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(block(x), layers[1](x))
    with safe_open(target, framework="pt") as file:
        metadata = file.metadata()
    facts = {"genome": GENOME.to_json(), "digest": digest(GENOME), "layer": "1"}
    assert metadata == {"run": "a run", **facts}


def test_missing_damaged_and_huge_files_raise_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"{}")
    os.mkfifo(tmp_path / "pipe.safetensors")
    for name in ("none.safetensors", "broken.safetensors", "pipe.safetensors"):
        with pytest.raises(ExportError, match=f"{name}: no weights can be read"):
            read_weights(tmp_path / name)
    path, _ = saved(tmp_path)
    monkeypatch.setattr("nas.store.weights.MAX_HEADER_BYTES", 99)
    with pytest.raises(ExportError, match=r"its header has .* bytes"):
        read_weights(path)
    monkeypatch.setattr("nas.store.weights.MAX_BYTES", 99)
    with pytest.raises(ExportError, match="bytes; expected at most 99"):
        read_weights(path)


@pytest.mark.parametrize("spare", [2**27, 2**29 + 2**28])
def test_weights_too_large_for_the_memory_raise_an_error(tmp_path: Path, spare: int) -> None:
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
        with pytest.raises(ExportError, match="no weights can be read"):
            read_weights(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda t: t.update({"layers.1.wq.weight": torch.ones(3, 16)}), r"layer 1.*\[3, 16\]"),
        (lambda t: t["layers.0.wq.weight"].fill_(float("nan")), "NaN"),
        (lambda t: t.update({"layers.0.wq.weight": torch.ones(16, 16).int()}), "found torch.int32"),
        (lambda t: t.pop("layers.0.wk.weight"), "layer 0.*wk.weight"),
        (lambda t: t.update({"layers.0.unknown": torch.ones(1)}), "layer 0.*unknown"),
        (lambda t: [t.pop(key) for key in [*t] if key.startswith("layers.1")], "layer 1"),
    ],
    ids=["shape", "nan", "dtype", "missing", "unknown", "layer"],
)
def test_weights_that_do_not_fit_raise_an_error(tmp_path: Path, edit: Edit, words: str) -> None:
    path, _ = saved(tmp_path, edit)
    with pytest.raises(ExportError, match=f"trained weights do not fit.*{words}"):
        request(path)


def test_export_of_saved_weights_of_another_shape_raises_an_error(tmp_path: Path) -> None:
    """Through ``nas.export``, in a format that holds weights and beside one that does not."""
    example = Path(__file__).resolve().parents[2] / "runs" / "example"
    run = Path(shutil.copytree(example, tmp_path / "run"))
    for path in (run / "weights").iterdir():
        layers = {key: tensor[..., :-1].contiguous() for key, tensor in load_file(path).items()}
        save_file(layers, path)
    for name, options in (("hf", {"format": "hf"}), ("x.py", {"weights": True})):
        with pytest.raises(ExportError, match="trained weights do not fit"):
            nas.export(f"{run}/best", tmp_path / name, **options)  # type: ignore[arg-type]
        assert not (tmp_path / name).exists()


def test_saving_twice_gives_identical_files(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    targets = [tmp_path / f"{i}.safetensors" for i in range(4)]
    for target in targets:
        save_weights(request(path), read_weights(path)[1], target)
    assert len({target.read_bytes() for target in targets}) == 1
