"""The parts of the benchmark ``gpu``, run on a processor without CUDA graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import gpu, gpu_blocks
from nas.compiler import build_attention
from nas.evaluation.local import LocalEvaluator
from nas.genome import ModelSizes
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.tasks import Data, Task, load_task

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def task() -> Task:
    few = {"width": 16, "image_size": 8, "train_images": 40, "validation_images": 20, "epochs": 1}
    return load_task("vit-cifar10", data="digits", overrides=few)


@pytest.fixture(scope="module")
def data(task: Task) -> Data:
    return task.load()


def test_gpu_steps_compares_eager_and_graph(task: Task, data: Data) -> None:
    rows = list(gpu.steps(task, data, CPU, rounds=2, count=2))
    assert [row["mechanism"] for row in rows] == list(gpu.GENOMES)
    for row in rows:
        spreads = [row[name] for name in ("eager, ms", "cuda graph, ms", "eager / cuda graph")]
        assert all(spread.low <= spread.value <= spread.high for spread in spreads)


def test_gpu_candidates_reports_rate_per_number_of_workers(task: Task, data: Data) -> None:
    worker_counts = []

    def local(task: Task, data: Data, workers: int) -> LocalEvaluator:
        worker_counts.append(workers)
        return LocalEvaluator(task, data)

    rows = list(gpu.candidates(task, data, local, numbers=(1, 2), count=3))
    assert worker_counts == [row["workers"] for row in rows] == [1, 2]
    assert all(row["candidates/h"] > 0 and row["failed"] == 0 for row in rows)


def test_gpu_numerics_finds_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ModelSizes(128, 8, 1, 9)
    values = [row["largest error"] for row in gpu_blocks.numerics(CPU, sizes)]
    assert values[0] < 1e-5
    assert values[1] < 1e-4
    assert 1e-4 < values[2] < 0.1
    build = gpu_blocks.build_attention

    def wrong(*arguments: Any, **options: Any) -> nn.Module:
        block = build(*arguments, **options)
        if not options:
            block.register_forward_hook(lambda _block, _x, y: 1.01 * y)
        return block

    monkeypatch.setattr(gpu_blocks, "build_attention", wrong)
    assert next(gpu_blocks.numerics(CPU, sizes))["largest error"] > 1e-3


@pytest.mark.slow
def test_gpu_blocks_on_a_processor() -> None:
    sizes = ModelSizes(16, 4, 1, 9)
    *times, summary = gpu_blocks.calibration(sizes, 2, CPU, seconds=0.0)
    assert len(times) == summary["genomes"] == len(MECHANISMS)
    assert next(gpu_blocks.swap(CPU, rounds=1, width=32))["largest change"] < 1e-5
    assert len(list(gpu_blocks.cudnn(CPU, rounds=1, lengths=(5,)))) == 1


@pytest.mark.slow
def test_gpu_parts_survive_each_other(tmp_path: Path) -> None:
    """Both fail; and no part begins after the last minute."""
    settings = {"data": "digits", "rounds": 1, "genome": []}
    out = tmp_path / "gpu.json"
    assert len(list(gpu.run_parts(["no such part", "nor this"], settings, out))) == 2
    parts = json.loads(out.read_text())["parts"]
    assert [part["error"] for part in parts.values()] == [
        "KeyError: 'no such part' (1)", "KeyError: 'nor this' (1)",
    ]  # fmt: skip
    [row] = gpu.run_parts(["steps"], settings, out, minutes=-1)
    assert str(row["error"]).startswith("not begun within")


def test_gpu_attention_compares_blocks_with_fused_attention() -> None:
    genomes = {name: mechanism(name).genome for name in ("mha", "uniform")}
    rows = list(gpu_blocks.attention(genomes, CPU, rounds=1, lengths=(32,)))
    assert [row["block"] for row in rows] == [gpu_blocks.FUSED, "mha", "uniform"]
    assert rows[0]["to fused"].value == 1.0


def test_gpu_fused_equals_block_of_standard_attention() -> None:
    torch.manual_seed(0)
    fused, block = (
        gpu_blocks.Fused(),
        build_attention(mechanism("mha").genome, gpu_blocks.DIM, gpu_blocks.HEADS),
    )
    with torch.no_grad():
        query, key, value = fused.wqkv.weight.chunk(3)
        for name, weight in (("wq", query), ("wk", key), ("wv", value), ("wo", fused.wo.weight)):
            getattr(block, name).weight.copy_(weight)
        if block.wo.bias is None:
            fused.wo.bias.zero_()
        else:
            block.wo.bias.copy_(fused.wo.bias)
        x = torch.randn(1, 20, gpu_blocks.DIM)
        torch.testing.assert_close(block(x), fused(x), rtol=1e-4, atol=1e-5)
