from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from nas.common.errors import ExportError, GenomeError, NasError
from nas.compiler import make_plan
from nas.costs import CostContext, attention_cost, costs_of
from nas.costs.memory import kv_cache_bytes_per_token
from nas.costs.operations import _HANDLES, _is_pointwise, count_calls
from nas.costs.profile import _counts
from nas.exporting import ExportRequest
from nas.exporting.python_file import python_file
from nas.genome import Genome, ModelSizes, Placement, Rest, Visibility
from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.genome.primitives import REGISTRY, Role, primitive
from tests.genomes import ATTENTION_TO_FIRST, build


@contextmanager
def registered(forward: Callable[[Tensor], Tensor], **declared: Any) -> Iterator[None]:
    """Register a primitive ``custom`` that transforms tokens by a function."""

    @primitive(
        "custom",
        "tokens: tokens[h,w] -> tokens[h,w]",
        role=Role.TRANSFORM,
        notation="f({tokens})",
        source="a test",
        **declared,
    )
    class Custom(torch.nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return forward(tokens)

    try:
        yield
    finally:
        del REGISTRY._members["custom"]
        _counts.cache_clear()


AFTER_1 = ("softmax", [1]), ("weighted_sum", [2, "v"])
CUSTOM = (("custom", "v"), *ATTENTION_TO_FIRST)


def test_operation_without_a_counting_rule_is_named() -> None:
    with (
        registered(lambda tokens: torch.cdist(tokens, tokens) @ tokens),
        pytest.raises(NasError, match="cdist"),
    ):
        attention_cost(build(*CUSTOM), dim=16, heads=2, tokens=4)


def test_declared_and_pointwise_operations_count_their_elements() -> None:
    def elementwise(forward: Callable[[Tensor], Tensor], **declared: Any) -> int:
        with registered(forward, **declared):
            return attention_cost(build(*CUSTOM), dim=16, heads=2, tokens=4)["elementwise"]

    plain = elementwise(lambda tokens: tokens.mT.mT)
    assert elementwise(lambda tokens: torch.atan(tokens)) == plain + 4 * 16
    assert elementwise(lambda tokens: torch.lerp(tokens, tokens, 0.5).floor()) == plain + 2 * 4 * 16
    declared = ("aten::special_ndtr",)
    assert elementwise(lambda t: torch.special.ndtr(t), elementwise=declared) == plain + 4 * 16
    with pytest.raises(
        NasError, match=r"aten::special_ndtr of Custom; .*\('aten::special_ndtr',\)"
    ):
        elementwise(lambda tokens: torch.special.ndtr(tokens))


def test_pointwise_operations_that_fvcore_ignores_have_a_rule() -> None:
    ignored = import_module("fvcore.nn.jit_analysis")._IGNORED_OPS
    assert not [op for op in ignored if _is_pointwise(op) and op not in _HANDLES]


def test_length_that_a_primitive_refuses_is_a_genome_error() -> None:
    def at_most_five(tokens: Tensor) -> Tensor:
        if tokens.shape[2] > 5:
            raise ValueError(f"{tokens.shape[2]} tokens came; expected at most 5")
        return tokens.relu()

    with registered(at_most_five):
        assert attention_cost(build(*CUSTOM), dim=16, heads=2, tokens=5)["macs"] > 0
        with pytest.raises(GenomeError, match="6 tokens"):
            attention_cost(build(*CUSTOM), dim=16, heads=2, tokens=6)


def test_width_that_a_primitive_refuses_is_a_genome_error() -> None:
    found = build(("rope", "q"), ("scaled_dot_product", [0, "k"]), *AFTER_1)
    with pytest.raises(GenomeError, match="the width is 3; expected an even number"):
        attention_cost(found, dim=12, heads=4, tokens=8)


def test_costs_of_multi_head_attention_equal_their_formulas() -> None:
    n, d = 65, 64
    cost = attention_cost(MECHANISMS["mha"].genome, dim=d, heads=4, tokens=n)
    assert cost["macs"] == 4 * n * d * d + 2 * n * n * d
    assert cost["attention_macs"] == 2 * n * n * d
    assert cost["params"] == 4 * d * d + d
    assert cost["kv_cache_bytes_per_token"] == 2 * 2 * d
    gated = attention_cost(MECHANISMS["forgetting"].genome, dim=d, heads=4, tokens=n)
    assert gated["kv_cache_bytes_per_token"] == 2 * 2 * d + 4 * 4  # sums of gates have 32 bits
    # the scale and the softmax of each score, apart from multiply-adds
    assert cost["elementwise"] == 2 * 4 * n * n
    # biases, two layer norms and a feed-forward of width 4 d around it
    assert cost["seed_compatible_macs"] == cost["macs"] + 8 * n * d * d + 5 * 2 * n * d


def test_convolutions_count_exactly_at_long_sequences() -> None:
    score = ("convolutional_score", "qk")
    convolutional = build(("short_conv", "v"), score, *ATTENTION_TO_FIRST[1:])
    n, d = 333, 32
    cost = attention_cost(convolutional, dim=d, heads=4, tokens=n)
    assert cost["macs"] == 4 * n * d * d + 2 * n * n * d + 2 * 3 * n * d + 3 * n * d


@pytest.mark.parametrize("tokens", [255, 256])
def test_softmax_attention_of_unequal_widths_counts_no_padding(tokens: int) -> None:
    nodes = ("scaled_dot_product", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"])
    cost = attention_cost(build(*nodes, qk_dim="1/2"), dim=64, heads=4, tokens=tokens)
    assert cost["attention_macs"] == tokens**2 * (32 + 64)


def test_cache_holds_the_operands_of_a_step_without_state_which_export_cannot_decode() -> None:
    def sums(tokens: Tensor) -> Tensor:
        return tokens.cumsum(dim=2)

    def cached(**declared: Any) -> int:
        with registered(sums, **declared):
            REGISTRY["custom"].module.needs_all_tokens = True
            cost = attention_cost(build(*CUSTOM), dim=16, heads=2, tokens=4)
            return cost["kv_cache_bytes_per_token"]

    assert cached() == 2 * 3 * 16  # keys, values and results of the step
    assert cached(is_causal_safe=lambda params: False) == 2 * 2 * 16
    with registered(sums):
        REGISTRY["custom"].module.needs_all_tokens = True
        with pytest.raises(ExportError, match=r"custom declares no recurrence, .* --no-causal\.$"):
            python_file(ExportRequest(build(*CUSTOM), 16, 4, is_causal=True))


def test_counting_draws_no_random_numbers_and_warns_of_nothing() -> None:
    state = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention_cost(MECHANISMS["qana"].genome, dim=32, heads=4, tokens=9)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("form", ["matmul", "einsum", "fused"])
def test_equal_attention_counts_equally_in_every_form(form: str) -> None:
    class Attention(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            q = x.view(1, 19, 4, 8).transpose(1, 2)
            if form == "fused":
                return torch.nn.functional.scaled_dot_product_attention(q, q, q)
            if form == "einsum":
                scores = torch.einsum("bhqd,bhkd->bhqk", q, q)
                return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), q)
            return (q @ q.transpose(-2, -1)).softmax(-1) @ q

    counts = count_calls(Attention(), (torch.empty(1, 19, 32, device="meta"),))
    assert sum(n for name, n in counts.items() if name != "elementwise") == 2 * 19 * 19 * 32


def test_cache_of_a_window_or_of_sums_does_not_grow() -> None:
    def cache_bytes(genome: Genome, tokens: int) -> float:
        return kv_cache_bytes_per_token(
            make_plan(genome), CostContext(ModelSizes(64, 8, 1, tokens))
        )

    mha = MECHANISMS["mha"].genome
    assert cache_bytes(mha, 100) == 2 * 2 * 64
    near = replace(mha, visibility=Visibility(16, 4))
    assert cache_bytes(near, 100) == 2 * 2 * 64 * 20 / 100
    assert cache_bytes(near, 10) == 2 * 2 * 64
    linear = build(("scaled_dot_product", "qk"), ("softmax_free", [0]), ("weighted_sum", [1, "v"]))
    assert cache_bytes(linear, 100) == 4 * 64 * 8 / 100  # keys times values, of each head
    assert cache_bytes(linear, 3) == 2 * 2 * 64  # rows of few tokens are smaller than the sums
    assert cache_bytes(MECHANISMS["uniform"].genome, 100) == 4 * 64 / 100


def context(depth: int = 3, tokens: int = 65) -> CostContext:
    return CostContext(ModelSizes(64, 4, depth, tokens), False, False, {})


@pytest.mark.parametrize("rest", [Rest(window=16), Rest(name="forgetting")], ids=str)
def test_costs_of_a_hybrid_are_those_of_its_blocks(rest: Rest) -> None:
    genome = MECHANISMS["gqa"].genome
    placement = Placement(every=4, count=3, rest=rest)
    there = context(depth=8)
    sizes = {"dim": 64, "heads": 4, "tokens": 65}
    own = attention_cost(replace(genome, placement=placement), **sizes)
    others = attention_cost(mechanism(str(rest)).genome, **sizes)
    resolved = there.resolve(replace(genome, placement=placement))
    found = costs_of(resolved, there, own)
    assert set(costs_of(resolved, there)) == {"macs", "params", "kv_cache_bytes_per_token"}
    assert own == attention_cost(genome, **sizes)
    for name, value in found.items():
        assert value == pytest.approx(6 * own[name] + 2 * others[name], abs=8), name
    assert found["params"] == 6 * own["params"] + 2 * others["params"]


def test_costs_of_decoding_depend_on_the_context() -> None:
    near = replace(MECHANISMS["mha"].genome, visibility=Visibility(16, 4))
    name, there = "kv_cache_bytes_per_token", context(depth=1)
    assert costs_of(there.resolve(near), there, [name])[name] == 2 * 2 * 64 * 20 / 65
    far = costs_of(there.resolve(near), replace(there, cached_tokens=4096))
    assert far[name] == 2 * 2 * 64 * 20 / 4096
    assert far["macs"] == costs_of(there.resolve(near), there)["macs"]
