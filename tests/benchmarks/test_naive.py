"""The naive forms that blocks are timed against compute what the blocks compute."""

from __future__ import annotations

import pytest
import torch

from benchmarks.naive import naive
from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS


@pytest.mark.parametrize("name", MECHANISMS)
def test_naive_form_equals_the_block(name: str) -> None:
    torch.manual_seed(0)
    block = build_attention(MECHANISMS[name].genome, 32, 8).double()
    for weight in block.parameters():  # what starts at zero would hide its part
        torch.nn.init.normal_(weight, std=0.3)
    x = torch.randn(2, 70, 32, dtype=torch.float64, requires_grad=True)
    given, wanted = block(x), naive(block, x)
    torch.testing.assert_close(given, wanted, atol=1e-10, rtol=0)
    above = torch.randn_like(given)
    pairs = zip(*(_gradients(out, x, block, above) for out in (given, wanted)), strict=True)
    for own, plain in pairs:
        torch.testing.assert_close(own, plain, atol=1e-8, rtol=0)


def _gradients(
    out: torch.Tensor, x: torch.Tensor, block: torch.nn.Module, above: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    weights = [x, *block.parameters()]
    return torch.autograd.grad(out, weights, above, materialize_grads=True, allow_unused=True)
