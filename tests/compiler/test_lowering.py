"""Lowering: used where it applies, and equal to the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from nas.compiler import build_attention, make_plan
from nas.compiler.source import Source
from nas.costs import CostContext
from nas.costs.memory import kv_cache_bytes_per_token
from nas.genome import Genome, ModelSizes, Visibility
from nas.genome.mechanisms import MECHANISMS
from tests.compiler.test_compiler import both, check_equal, masks
from tests.genomes import build

Nodes = Sequence[tuple[Any, ...]]
LONG = 260  # where a CPU takes the fused kernel


def attend(*scores: tuple[Any, ...], normaliser: str = "softmax") -> Nodes:
    """Scores, the last of which is normalised and aggregates v."""
    last = len(scores)
    return (*scores, (normaliser, [last - 1]), ("weighted_sum", [last, "v"]))


SHARED = {"raw": "shared"}
GATED = (("softmax_free", [1]), ("weighted_sum", [2, "v"]))
DOT = ("scaled_dot_product", "qk")
POSITIVE = (("elu_plus_one", "q"), ("elu_plus_one", "k"), ("scaled_dot_product", [0, 1]))
GATE = ("forget_gate", "v")
# Graphs by name, each with its projections.
CASES: dict[str, tuple[Nodes, dict[str, Any]]] = {
    "dot_product": (attend(DOT), {}),
    "narrow": (attend(DOT), {"qk_dim": "1/2"}),
    "groups": (attend(DOT), {"kv_heads": "1/4"}),
    "one_raw_key": (attend(DOT), SHARED | {"has_wk": False}),
    "decay": (attend(DOT, GATE, ("decay", [0, 1])), {"kv_heads": "1/4"}),
    "decays": (attend(DOT, GATE, ("decay", [0, 1]), ("decay", [2, 1])), {}),
    "key_bias": (attend(DOT, ("key_bias", [0, "v"])), {"kv_heads": "1/4"}),
    "zero_sink": (attend(DOT, normaliser="softmax_one"), {"kv_heads": "1/4"}),
    "sink": (attend(DOT, ("key_bias", [0, "k"]), normaliser="softmax_sink"), {}),
    "plain_sink": (attend(DOT, normaliser="softmax_sink"), {}),
    "narrow_sink": (attend(DOT, normaliser="softmax_sink"), {"qk_dim": "1/2"}),
    "head_difference": (
        (DOT, ("softmax", [0]), ("head_difference", [1]), ("weighted_sum", [2, "v"])),
        {"kv_heads": "1/4"},
    ),
    "difference": (
        (
            *(DOT, ("softmax_sink", [0]), ("uniform", "k")),
            *(("difference", [2, 1]), ("weighted_sum", [3, "v"])),
        ),
        {"kv_heads": "1/4"},
    ),
    "sum_of_differences": (
        (
            *(DOT, ("softmax", [0]), ("scaled_dot_product", "kq"), ("softmax", [2])),
            *(("uniform", "k"), ("difference", [1, 4]), ("add", [3, 5])),
            ("weighted_sum", [6, "v"]),
        ),
        {},
    ),
    "softmax_free": (attend(DOT, normaliser="softmax_free"), {"kv_heads": "1/4"}),
    "sum_of_values": (
        (DOT, ("softmax_free", [0], {"divide": False}), ("weighted_sum", [1, "v"])),
        {"kv_heads": "1/4"},
    ),
    "ratio": (attend(*POSITIVE, normaliser="ratio"), {"kv_heads": "1/4"}),
    "taylor": (attend(("quadratic_product", "qk"), normaliser="ratio"), {"kv_heads": "1/4"}),
    "square": (
        attend(("quadratic_product", "qk", {"form": "square"}), normaliser="softmax_free"),
        {"qk_dim": "1/2"},
    ),
    "gated": (
        (("forget_gate", "k"), ("gated_product", ["q", "k", 0]), *GATED),
        {"kv_heads": "1/4"},
    ),
    "gated_features": ((("feature_gate", "k"), ("gated_product", ["q", "k", 0]), *GATED), {}),
    "uniform": (attend(DOT, normaliser="uniform"), {"kv_heads": "1/4"}),
}


CALLS = (
    *("softmax_attention(", "differential_attention(", "biased_attention("),
    *("linear_attention(", "quadratic_attention(", "visible_mean("),
)
COUNTS = {"difference": 2, "sum_of_differences": 3}  # of kernel calls; others have one


def source(genome: Genome, *, fuse: bool = True) -> str:
    return Source(make_plan(genome), fuse=fuse).write(32, 8).text


def calls(genome: Genome, *, fuse: bool = True) -> int:
    text = source(genome, fuse=fuse)
    return sum(text.count(name) for name in CALLS)


@pytest.mark.parametrize("case", CASES)
def test_a_lowered_graph_equals_the_interpreter(case: str) -> None:
    """Of many tokens; few, with every kind of mask, are in test_source."""
    nodes, projections = CASES[case]
    check_equal(build(*nodes, **projections), LONG, masks(LONG)["mask"] | {"is_causal": True})


@pytest.mark.parametrize("case", ["taylor", "square"])
def test_quadratic_scores_of_many_tokens_are_computed_by_features(case: str) -> None:
    nodes, projections = CASES[case]
    found, lengths = build(*nodes, **projections), CostContext(ModelSizes(32, 8, 4, LONG))
    padding = masks(LONG)["padding"]
    check_equal(found, LONG, {}, {"is_causal": True}, padding, padding | {"is_causal": True})
    plain = build(*attend(("quadratic_product", "qk"), normaliser="softmax"), **projections)
    cached, stored = (kv_cache_bytes_per_token(make_plan(g), lengths) for g in (found, plain))
    assert cached < stored / 2


@pytest.mark.parametrize("case", CASES)
def test_lowering_can_be_switched_off(case: str) -> None:
    nodes, projections = CASES[case]
    found = build(*nodes, **projections)
    assert calls(found) == COUNTS.get(case, 1)
    assert calls(found, fuse=False) == 0
    assert max(len(line) for line in source(found).splitlines()) <= 100


def test_a_ratio_of_scores_of_unknown_sign_is_not_lowered() -> None:
    found = build(*attend(DOT, normaliser="ratio"))
    assert calls(found) == 0
    check_equal(found, 40, {"is_causal": True})


@pytest.mark.parametrize("case", CASES)
def test_lowered_graphs_run_in_windows(case: str) -> None:
    nodes, projections = CASES[case]
    found = replace(build(*nodes, **projections), visibility=Visibility(12, 2))
    assert "in_window(" in source(found)
    given = masks(40)["padding"]
    check_equal(found, 40, given, given | {"is_causal": True})


def test_lowered_and_other_aggregations_run_side_by_side() -> None:
    other = (("cosine", "kq"), ("sparsemax", [3]), ("weighted_sum", [4, "k"]))
    both_ways = build(*attend(DOT), *other, ("add", [2, 5]))
    assert calls(both_ways) == 1
    for kind in masks(11).values():
        check_equal(both_ways, 11, kind | {"is_causal": True})


class Largest(TorchDispatchMode):
    """The most numbers that any operation gives."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, tuple) else (out,):
            if isinstance(item, Tensor):
                self.numbers = max(self.numbers, item.numel())
        return out


@pytest.mark.parametrize("case", CASES)
def test_no_tensor_has_a_number_for_each_pair(case: str) -> None:
    nodes, projections = CASES[case]
    block = build_attention(build(*nodes, **projections), 32, 8)
    n = 1024
    with Largest() as largest:
        block(torch.randn(1, n, 32), is_causal=case.startswith("decay")).square().sum().backward()
    assert largest.numbers < n**2


WIDE = SHARED | dict.fromkeys(("has_wq", "has_wk", "has_wv"), False)
ONE = {"q_heads": "one", "kv_heads": "one"}
TAYLOR = ("quadratic_product", "qk")


@pytest.mark.parametrize("projections", [{}, WIDE, ONE, WIDE | ONE], ids=str)
@pytest.mark.parametrize(
    "nodes",
    [attend(TAYLOR, normaliser="ratio"), attend(*POSITIVE, normaliser="ratio")],
    ids=["quadratic_product", "dot_product"],
)
def test_lowering_saves_multiply_adds(nodes: Nodes, projections: dict[str, Any]) -> None:
    """Heads of shared streams are as wide as the model, which makes products of features large."""
    genome = build(*nodes, **projections)
    for dim, tokens, is_causal in product((64, 1024), (16, 128, 300, 1100), (False, True)):
        counts = []
        for reference in (False, True):
            with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
                block = build_attention(genome, dim, 4, reference=reference)
                block(torch.empty(1, tokens, dim), is_causal=is_causal)
            counts.append(counter.get_total_flops())
        assert counts[0] <= 1.3 * counts[1]  # chunks of 128 tokens are padded


def test_operations_on_tokens_get_causal_masks_only_where_they_hide_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mamba2 = MECHANISMS["mamba2"].genome
    left = torch.zeros(2, 9, dtype=torch.bool)
    left[0, :3] = True
    check_equal(mamba2, 9, {"key_padding_mask": left, "is_causal": True})
    whole = "mask = past if mask is None else mask & past"
    assert whole not in source(mamba2)
    # A plug-in's operation may use its mask for pairs.
    for step in make_plan(mamba2).steps:
        monkeypatch.setattr(step.primitive.module, "reads_hidden_tokens", False, raising=False)
    assert whole in source(mamba2)


def test_a_sink_accepts_tokens_of_any_layout() -> None:
    raw = SHARED | dict.fromkeys(("has_wq", "has_wk", "has_wv"), False)
    for block in both(build(*attend(DOT, normaliser="softmax_sink"), **raw), 32, 8):
        x = torch.randn(2, 32, 12, dtype=torch.float64).mT
        torch.testing.assert_close(block(x), block(x.contiguous()))


def test_both_orders_of_a_difference_have_one_cache() -> None:
    first, second = (DOT, ("softmax", [0]), ("uniform", "k")), ("weighted_sum", [3, "v"])
    costs = {
        kv_cache_bytes_per_token(
            make_plan(build(*first, ("difference", order), second)),
            CostContext(ModelSizes(64, 4, 1, 128)),
        )
        for order in ([1, 2], [2, 1])
    }
    assert costs == {256.0}
