"""Written source: equal to the interpreter, readable, and valid for any length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from nas.compiler import build_attention, make_plan, plain_source
from nas.compiler.source import Source
from nas.genome import Genome, Visibility
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives import Role, primitive
from nas.testing.mechanisms import equals_the_interpreter
from tests.compiler.test_lowering import CASES
from tests.genomes import ATTENTION_TO_FIRST, build
from tests.samples import samples

STEP = 0.5


def plain(genome: Genome, dim: int, heads: int, **sizes: bool) -> nn.Module:
    """The class of the plain source, built."""
    scope: dict[str, Any] = {"__name__": "written"}
    exec(plain_source(genome, dim, heads, **sizes), scope)
    found: nn.Module = scope["Attention"]()
    return found


@pytest.mark.parametrize("count", [25, pytest.param(1_000, marks=pytest.mark.slow)])
def test_random_genomes_equal_the_interpreter(count: int) -> None:
    for genome in samples("attention_v2", count, seed=7):
        equals_the_interpreter(genome)


@pytest.mark.parametrize("case", CASES)
def test_lowered_graphs_equal_the_interpreter(case: str) -> None:
    nodes, projections = CASES[case]
    equals_the_interpreter(build(*nodes, **projections))


@pytest.mark.parametrize("form", [plain, build_attention])
def test_only_is_causal_moves_the_window(form: Any) -> None:
    """A causal attn_mask hides later tokens of the window around each; nothing widens it."""
    block = form(replace(MECHANISMS["mha"].genome, visibility=Visibility(4)), 16, 2)
    past = torch.ones(9, 9, dtype=torch.bool).tril()
    x = torch.randn(1, 9, 16, requires_grad=True)
    for given, reached in (
        ({"is_causal": True}, [5, 6, 7, 8]),
        ({"attn_mask": past}, [6, 7, 8]),
        ({"attn_mask": past, "is_causal": True}, [5, 6, 7, 8]),
    ):
        (slope,) = torch.autograd.grad(block(x, **given)[0, 8].sum(), x)
        assert slope[0].abs().sum(-1).nonzero().flatten().tolist() == reached
    assert "with is_causal the last 4" in (type(block).__doc__ or "")


def test_torchs_attention_is_called() -> None:
    for name in ("mha", "gqa", "sqa", "sw_sqa", "patterns_and_messages"):
        assert " scaled_dot_product_attention(" in plain_source(MECHANISMS[name].genome, 64, 8)
    assert "enable_gqa=True" in plain_source(MECHANISMS["gqa"].genome, 64, 8)


def exported_with_any_length(genome: Genome) -> None:
    block = plain(genome, 16, 4).eval()
    tokens = torch.export.Dim("tokens", min=2, max=64)
    example = torch.randn(2, 9, 16), None, torch.rand(2, 9) > 0.5
    shapes = ({1: tokens}, None, {1: tokens})
    program = torch.export.export(block, example, dynamic_shapes=shapes).module()
    for n in (5, 23):
        x, padding = torch.randn(2, n, 16), torch.rand(2, n) > 0.5
        torch.testing.assert_close(program(x, None, padding), block(x, None, padding))


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_are_exported_with_any_number_of_tokens(name: str) -> None:
    exported_with_any_length(MECHANISMS[name].genome)


@pytest.mark.parametrize("normaliser", ["sparsemax", "topk_softmax"])
def test_normalisers_are_exported_with_any_number_of_tokens(normaliser: str) -> None:
    nodes = ("cosine", "qk"), (normaliser, [0]), ("weighted_sum", [1, "v"])
    exported_with_any_length(build(*nodes))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:FutureWarning")  # torch's own, in jvp
@pytest.mark.parametrize("name", ["mha", "qana", "kda"])
def test_mechanisms_run_without_data_and_forward_mode(name: str) -> None:
    block = plain(MECHANISMS[name].genome, 16, 4)
    x = torch.randn(2, 7, 16)
    with sdpa_kernel(SDPBackend.MATH):  # torch's fused kernels have no forward mode
        out, slope = jvp(block, (x,), (torch.randn_like(x),))
    assert bool(slope.isfinite().all())
    assert block.to("meta")(x.to("meta")).shape == out.shape


def test_number_one_is_exported_without_a_warning() -> None:
    equals_the_interpreter(
        build(("qana", "qk", {"basis": 1}), ("softmax", [0]), ("weighted_sum", [1, "v"]))
    )


@pytest.mark.usefixtures("restored_registries")
def test_a_forward_with_a_default_or_a_constant_is_called_as_a_module() -> None:
    def declared(name: str, module: type[torch.nn.Module]) -> None:
        module.__doc__ = "Tokens plus a constant."
        signature = "tokens: tokens[h,w] -> tokens[h,w]"
        words = {"notation": "{tokens} + e", "source": "a test"}
        primitive(name, signature, role=Role.TRANSFORM, **words)(module)

    class Raised(torch.nn.Module):
        def forward(self, tokens: torch.Tensor, eps: float = 0.5) -> torch.Tensor:
            return tokens + eps

    class RaisedByStep(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return tokens + STEP

    for name, module in (("raised", Raised), ("raised_by_step", RaisedByStep)):
        declared(name, module)
        plan = make_plan(build((name, "v"), *ATTENTION_TO_FIRST))
        assert f" = {module.__name__}()" in Source(plan).write(16, 4).text
