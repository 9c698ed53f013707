"""Long sequences part by part: the same values and gradients, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from nas.compiler import build_attention, emit
from nas.compiler.kernels import gated
from nas.compiler.kernels.windows import by_rows
from nas.genome.mechanisms import MECHANISMS
from nas.store.sources import load_genome
from tests.compiler.test_compiler import both, masks, random_genomes, values_and_gradients
from tests.tensors import check_same

if TYPE_CHECKING:
    from nas.genome import Genome

    Build = Callable[..., Genome]

MANY = 2**27 // (2 * 8 * 9 * 4)  # planes with which four of nine queries are a part


def in_parts(block: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a block's parts be small; returns where they will have begun."""
    begun: list[int] = []
    scope = type(block).forward.__globals__

    def small(attend: Callable[..., Tensor], *rest: object, planes: int) -> Tensor:
        def watched(*given: object) -> Tensor:
            begun.append(int(str(given[-1])))
            return attend(*given)

        return by_rows(watched, *rest, planes=MANY)  # type: ignore[arg-type]

    if "by_rows" in scope:
        monkeypatch.setitem(scope, "by_rows", small)
    monkeypatch.setattr(gated, "by_rows", small)
    return begun


def check_parts(genome: Genome, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Parts equal the interpreter, with gradients and without; returns where they began."""
    blocks = both(genome, 32, 8)
    begun = in_parts(blocks[0], monkeypatch)
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    for given in masks(9).values():
        check_same(*(values_and_gradients(block, x, **given) for block in blocks))
        with torch.no_grad():
            check_same(*([block(x, **given)] for block in blocks))
    return begun


@pytest.mark.parametrize(
    "source", ["qana", "qana:rope=true", "additive", "neural_attention", "champion_2025"]
)
def test_parts_equal_the_interpreter(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = check_parts(load_genome(source), monkeypatch)
    assert set(begun) == {0, 4, 8}


def test_random_genomes_in_parts_equal_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    for genome in random_genomes("attention_v2", 40, seed=11):
        check_parts(genome, monkeypatch)


def test_one_method_returns_two_aggregations_of_a_stage(
    genome: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_ways = genome(
        ("cosine", "qk"),
        ("sparsemax", [0]),
        ("weighted_sum", [1, "v"]),
        ("weighted_sum", [1, "k"]),
        ("multiply", [2, 3]),
    )
    assert "tokens_2, tokens_3 = by_rows(" in emit(both_ways, 32, 8)
    assert set(check_parts(both_ways, monkeypatch)) == {0, 4, 8}


@pytest.mark.parametrize("source", ["qana:gate=warmup", "mha", "uniform"])
def test_stateful_gates_and_lowered_calls_do_not_run_in_parts(source: str) -> None:
    """A gate that counts its calls; fused calls and means, which need no parts."""
    assert "by_rows(" not in emit(load_genome(source), 32, 8)


def test_short_sequences_are_one_part() -> None:
    block = build_attention(MECHANISMS["qana"].genome, 64, 8)
    calls: list[Tensor] = []
    own = block.attend
    block.attend = lambda *given: calls.append(given[0]) or own(*given)
    block(torch.randn(128, 65, 64))
    assert len(calls) == 1


LONG = """
import resource, torch, nas
torch.set_num_threads(1)
block = nas.build_attention(nas.load_genome("{name}"), dim=64, heads=8)
x = torch.randn(1, 4096, 64, requires_grad=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
block(x).square().mean().backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qana", "additive", "neural_attention", "champion_2025"])
def test_four_thousand_tokens_train_within_two_gib(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG.format(name=name)], capture_output=True, text=True, check=True
    )
    print(f"{name}: {float(done.stdout):.2f} GiB")
    assert float(done.stdout) < 2.0
