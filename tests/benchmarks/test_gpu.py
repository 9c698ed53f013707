"""The benchmark ``gpu``, run on a processor without CUDA graphs."""

from __future__ import annotations

from argparse import Namespace

import pytest
import torch

from benchmarks import gpu
from nas.compiler import build_attention
from nas.evaluation.local import LocalEvaluator
from nas.genome.mechanisms import mechanism
from nas.tasks import Data, Task, load_task

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def task() -> Task:
    few = {"width": 16, "image_size": 8, "train_images": 40, "validation_images": 20, "epochs": 1}
    return load_task("vit-cifar10", data="digits", overrides=few)


@pytest.fixture(scope="module")
def data(task: Task) -> Data:
    return task.load()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_gpu_is_skipped_without_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.gpu(Namespace(data="cifar10", rounds=1)) == []
    assert "finds no CUDA device" in capsys.readouterr().out


def test_gpu_steps_compares_eager_and_graph(task: Task, data: Data) -> None:
    figures = gpu.steps(task, data, CPU, rounds=2, count=2)
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names) == 3 * len(gpu.GENOMES)
    assert "mha, eager / cuda graph" in names
    assert all(figure.low <= figure.value <= figure.high for figure in figures)


def test_gpu_candidates_reports_rate_per_number_of_workers(
    task: Task, data: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    worker_counts = []

    def local(task: Task, data: Data, workers: int) -> LocalEvaluator:
        worker_counts.append(workers)
        return LocalEvaluator(task, data)

    figures = gpu.candidates(task, data, local, numbers=(1, 2), count=3)
    assert worker_counts == [1, 2]
    assert [figure.unit for figure in figures] == ["candidates/h"] * 2
    assert "2 workers: 0 failed" in capsys.readouterr().out


def test_gpu_attention_compares_blocks_with_fused_attention() -> None:
    genomes = {name: mechanism(name).genome for name in ("mha", "uniform")}
    figures = gpu.attention(genomes, CPU, rounds=1, lengths=(32,))
    assert [figure.name for figure in figures] == [
        "F.scaled_dot_product_attention, 32 tokens",
        "mha, 32 tokens", "mha, 32 tokens / fused",
        "uniform, 32 tokens", "uniform, 32 tokens / fused",
    ]  # fmt: skip


def test_gpu_attention_reports_out_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    class Greedy(gpu.Fused):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("CUDA out of memory")

    figures = gpu.compare({"fused": gpu.Fused(), "greedy": Greedy()}, 32, CPU, rounds=1)
    assert [figure.name for figure in figures] == ["fused, 32 tokens"]
    assert "out of memory" in capsys.readouterr().out


def test_gpu_fused_equals_block_of_standard_attention() -> None:
    torch.manual_seed(0)
    fused, block = (
        gpu.Fused(),
        build_attention(mechanism("mha").genome, gpu.DIM, gpu.HEADS),
    )
    with torch.no_grad():
        query, key, value = fused.wqkv.weight.chunk(3)
        for name, weight in (("wq", query), ("wk", key), ("wv", value), ("wo", fused.wo.weight)):
            getattr(block, name).weight.copy_(weight)
        if block.wo.bias is None:
            fused.wo.bias.zero_()
        else:
            block.wo.bias.copy_(fused.wo.bias)
        x = torch.randn(1, 20, gpu.DIM)
        torch.testing.assert_close(block(x), fused(x), rtol=1e-4, atol=1e-5)
