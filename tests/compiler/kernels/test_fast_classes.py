"""Fast forms of primitives: the same parameters, values and gradients as the form to read."""

from __future__ import annotations

import pytest
import torch

import nas
from nas.compiler.kernels import fast_class
from nas.compiler.kernels.normalisers import softmax_of_largest
from nas.genome.primitives import Sizes
from nas.testing.cases import Case, build, call, causal, draw, padding
from tests.contracts.test_primitives import CASES
from tests.tensors import check_same, with_gradients

FAST = [case for case in CASES if fast_class(case.primitive.module) is not case.primitive.module]
LONG = Sizes(
    dim=12, heads=3, width=4, tokens=140
)  # long enough for pieces, chunks and Newton's steps


@pytest.mark.parametrize("case", FAST, ids=str)
@pytest.mark.parametrize(
    "mask", [None, causal(LONG.tokens), padding(LONG.tokens)], ids=["all", "causal", "padding"]
)
def test_fast_class_equals_its_primitive(case: Case, mask: torch.Tensor | None) -> None:
    plain = build(case, LONG)
    fast = build(case, LONG)
    fast.__class__ = fast_class(case.primitive.module)
    fast.load_state_dict(plain.state_dict())
    given = draw(case.signature, LONG, mask)
    results = []
    for module in (plain, fast):
        leaves = [t.clone().requires_grad_() for t in given]
        out = call(module, case, leaves, mask)
        results.append(with_gradients(out, [*leaves, *module.parameters()]))
    check_same(*results)


@pytest.mark.parametrize("name", ["gated_deltanet", "kda"])
def test_delta_rules_in_chunks_train_under_autocast(name: str) -> None:
    torch.manual_seed(0)
    block = nas.build_attention(name, dim=32, heads=4)
    x = torch.randn(2, LONG.tokens, 32)
    exact = block(x, is_causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = block(x, is_causal=True)
    out.float().square().mean().backward()
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)


def test_ties_of_the_largest_are_kept_where_subnormal_numbers_are_zero() -> None:
    scores = torch.tensor([[[[1.0, 1.0, 1.0, 0.5]]]])
    torch.set_flush_denormal(True)
    try:
        weights = softmax_of_largest(scores, 2)
    finally:
        torch.set_flush_denormal(False)
    torch.testing.assert_close(weights, torch.tensor([[[[1.0, 1.0, 1.0, 0.0]]]]) / 3)
