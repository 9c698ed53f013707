"""The naive forms compute the same values and gradients as the blocks."""

from __future__ import annotations

import pytest
import torch

from benchmarks.naive import naive, named_with_naive_form
from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS

NAMES = named_with_naive_form()


def test_the_papers_that_define_the_project_have_naive_forms() -> None:
    assert {"mha", "additive", "xsmqa", "qana", "neural_attention", "messages", "uniform"} <= {
        *NAMES
    }
    assert len(NAMES) >= 21


@pytest.mark.parametrize("name", NAMES)
def test_naive_form_equals_the_block(name: str) -> None:
    torch.manual_seed(0)
    block = build_attention(MECHANISMS[name].genome, 32, 8).double()
    for weight in block.parameters():  # weights that start at zero would hide errors
        torch.nn.init.normal_(weight, std=0.3)
    x = torch.randn(2, 70, 32, dtype=torch.float64, requires_grad=True)
    actual, expected = block(x), naive(block, x)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=0)
    gradient = torch.randn_like(actual)
    pairs = zip(*(_gradients(out, x, block, gradient) for out in (actual, expected)), strict=True)
    for compiled, plain in pairs:
        torch.testing.assert_close(compiled, plain, atol=1e-8, rtol=0)


def _gradients(
    out: torch.Tensor, x: torch.Tensor, block: torch.nn.Module, gradient: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    weights = [x, *block.parameters()]
    return torch.autograd.grad(out, weights, gradient, materialize_grads=True, allow_unused=True)
