"""Exported hybrids: both classes in a file, in models of depth 8 outside of this project."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file

from nas.exporting import EXPORTS, ExportRequest, export_file
from nas.genome import Genome, Placement, Rest
from nas.genome.mechanisms import MECHANISMS
from nas.store.sources import genome_of_export
from nas.tasks import load_task
from nas.training.candidate import attention_weights, build_model

GQA = MECHANISMS["gqa"].genome
HYBRID = Placement(every=4, count=3, rest=Rest(window=8, global_tokens=1, name="rope"))
OTHERS = [
    Placement(every=4, offset=3, rest=Rest(kv_heads="1/2", window=4)),
    Placement(every=4, count=3, offset=2, rest=Rest(name="forgetting")),
    Placement(every=None, count=2, offset=1),
]
PROGRAM = """
import importlib.util, sys
import torch
from safetensors.torch import load_file, save_file

spec = importlib.util.spec_from_file_location("hybrid", sys.argv[1])
hybrid = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hybrid)
assert hybrid.self_test() < 1e-8
tensors = load_file(sys.argv[2])
x = tensors.pop("x")
model = torch.nn.Module()
model.layers = torch.nn.ModuleList(hybrid.attention_of_layer(layer) for layer in range(8))
model.load_state_dict(tensors)
model.double().eval()
with torch.no_grad():
    for layer in model.layers:
        x = x + layer(x, is_causal=True)
assert not any(name.partition(".")[0] == "nas" for name in sys.modules)
save_file({"x": x}, sys.argv[3])
"""


def request(genome: Genome, **options: Any) -> ExportRequest:
    return ExportRequest(genome, 16, 4, **options)


@pytest.mark.parametrize(
    "placement", [HYBRID, *(pytest.param(p, marks=pytest.mark.slow) for p in OTHERS)], ids=str
)
def test_hybrid_of_depth_8_equals_the_model_outside_of_the_project(
    tmp_path: Path, placement: Placement
) -> None:
    sizes = {"depth": 8, "width": 16, "heads": 4}
    task = load_task("vit-cifar10", data="digits", overrides=sizes)
    genome = replace(GQA, placement=placement)
    model: Any = build_model(task.resolve(genome), task, task.load(), seed=0)
    weights, x = load(attention_weights(model)), torch.randn(2, 11, 16, dtype=torch.float64)
    export_file(request(genome), tmp_path / "hybrid.py")
    save_file(weights | {"x": x}, tmp_path / "in.safetensors")
    names = "hybrid.py", "in.safetensors", "out.safetensors"
    command = [sys.executable, "-I", "-c", PROGRAM, *(str(tmp_path / name) for name in names)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        for block in model.attentions():
            x = x + block.double().eval()(x, is_causal=True)
    found = load_file(tmp_path / "out.safetensors")["x"]
    torch.testing.assert_close(found, x, rtol=1e-12, atol=1e-12)
    assert genome_of_export(tmp_path / "hybrid.py").placement == placement


def test_a_file_has_both_classes_only_for_a_hybrid() -> None:
    plain = str(EXPORTS["py"].content(request(GQA)))
    assert "StandardAttention" not in plain
    for is_fast in (False, True):
        scope: dict[str, Any] = {"__name__": "exported"}
        hybrid = replace(GQA, placement=Placement(every=4, count=3))
        exec(str(EXPORTS["py"].content(request(hybrid, is_fast=is_fast))), scope)
        assert scope["self_test"]() < 1e-8
        kinds = [type(scope["attention_of_layer"](layer)).__name__ for layer in range(5)]
        assert kinds == ["Attention"] * 3 + ["StandardAttention", "Attention"]
