"""The naive forms compute the same values and gradients as the blocks."""

from __future__ import annotations

import pytest
import torch

from benchmarks.naive import naive, named_with_naive_form
from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS
from tests.tensors import check_same, with_gradients

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
    leaves = [x, *block.parameters()]
    check_same(*(with_gradients(out, leaves) for out in (block(x), naive(block, x))))
