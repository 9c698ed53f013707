"""A layer's weights, copied from those that a run keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from nas.common.errors import ExportError
from nas.compiler import build_attention
from nas.exporting import Origin, export_module, export_weights
from nas.genome.canonical import digest
from nas.genome.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from pathlib import Path

GENOME = MECHANISMS["qana"].genome


def kept(folder: Path) -> tuple[Path, list[torch.nn.Module]]:
    """What a run keeps of a model whose layers 1 and 11 hold the mechanism."""
    layers = [build_attention(GENOME, 16, 2) for _ in range(2)]
    names = ("layers.1.", "layers.11.")
    tensors = {
        prefix + name: tensor
        for prefix, layer in zip(names, layers, strict=True)
        for name, tensor in layer.state_dict().items()
    }
    save_file(tensors, folder / "kept.safetensors", metadata={"run": "a run"})
    return folder / "kept.safetensors", layers


@pytest.mark.parametrize("is_fast", [False, True])
def test_weights_load_into_the_exported_class(tmp_path: Path, is_fast: bool) -> None:
    source, (first, _) = kept(tmp_path)
    target = tmp_path / "champion.safetensors"
    export_weights(source, 1, GENOME, target)
    scope: dict[str, Any] = {"__name__": "exported"}
    exec(export_module(GENOME, 16, 2, Origin("x"), is_fast=is_fast), scope)
    block = scope["Attention"]()
    block.load_state_dict(load_file(target))
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(block(x), first(x))
    with safe_open(target, framework="pt") as file:
        about = file.metadata()
    assert about == {
        "run": "a run",
        "genome": GENOME.to_json(),
        "digest": digest(GENOME),
        "layer": "1",
    }


def test_what_is_not_kept_is_said(tmp_path: Path) -> None:
    source, _ = kept(tmp_path)
    with pytest.raises(ExportError, match="no weights of layer 0"):
        export_weights(source, 0, GENOME, tmp_path / "out.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"{}")
    for name in ("none.safetensors", "broken.safetensors"):
        with pytest.raises(ExportError, match="no weights are kept there"):
            export_weights(tmp_path / name, 0, GENOME, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


def test_the_same_weights_are_the_same_file(tmp_path: Path) -> None:
    source, _ = kept(tmp_path)
    targets = [tmp_path / f"{i}.safetensors" for i in range(4)]
    for target in targets:
        export_weights(source, 1, GENOME, target)
    assert len({target.read_bytes() for target in targets}) == 1
