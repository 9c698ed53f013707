"""The parts of the benchmark ``gpu``, run on a processor without CUDA graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import gpu_blocks
from nas.compiler import build_attention
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
