"""Every rule of lowering: taken where it applies, switched off alone, equal to the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nas.compiler import RULES, build_attention, emit, make_plan
from nas.compiler.lowering import lower
from nas.errors import ConfigError
from nas.export.module import Origin, export_module
from nas.genome import Genome, Visibility
from nas.mechanisms import MECHANISMS
from nas.primitives import get
from tests.compiler.test_compiler import both, random_genomes, values_and_gradients
from tests.compiler.test_rows import check_equal as check_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    Build = Callable[..., Genome]
    Nodes = Sequence[tuple[Any, ...]]

LONG = 260  # where a CPU takes the fused kernel


def attend(*scores: tuple[Any, ...], normaliser: str = "softmax") -> Nodes:
    """Scores, the last of which is normalised and aggregates v."""
    last = len(scores)
    return (*scores, (normaliser, [last - 1]), ("weighted_sum", [last, "v"]))


SHARED = {"raw": "shared"}
DOT = ("scaled_dot_product", "qk")
TWICE = (DOT, ("softmax", [0]), ("weighted_sum", [1, "v"]), ("weighted_sum", [1, "k"]))
# Graphs by name, each with its projections and the rule without which it is not that call.
CASES: dict[str, tuple[Nodes, dict[str, Any], str]] = {
    "dot_product": (attend(DOT), {}, "dot_product"),
    "narrow": (attend(DOT), {"qk_dim": "1/2"}, "dot_product"),
    "bilinear": (attend(("bilinear", "qk")), {}, "bilinear"),
    "bilinear_groups": (attend(("bilinear", "qk")), {"kv_heads": "1/4"}, "bilinear"),
    "cosine": (attend(("cosine", "qk")), {}, "cosine"),
    "cosine_few_queries": (attend(("cosine", "qk")), {"q_heads": "1/4"}, "cosine"),
    "distance": (attend(("distance", "qk")), {}, "distance"),
    "distance_groups": (attend(("distance", "qk")), {"kv_heads": "1/4"}, "distance"),
    "distance_few_queries": (attend(("distance", "qk")), {"q_heads": "1/2"}, "distance"),
    "temperature": (attend(DOT, ("temperature", [0])), {"kv_heads": "1/2"}, "temperature"),
    "sharp_distance": (attend(("distance", "qk"), ("temperature", [0])), {}, "temperature"),
    "sum": (attend(DOT, ("bilinear", "vq"), ("add", [0, 1])), {"kv_heads": "1/4"}, "sum"),
    "sum_one_key": (attend(DOT, ("bilinear", "vk"), ("add", [0, 1])), {}, "sum"),
    "sum_one_query": (attend(DOT, ("scaled_dot_product", "qv"), ("add", [0, 1])), {}, "sum"),
    "sum_of_three": (
        attend(
            ("distance", "qk"),
            ("cosine", "qk"),
            ("temperature", [0]),
            ("add", [2, 1]),
            ("distance", "vk"),
            ("add", [3, 4]),
        ),
        {},
        "distance",
    ),
    "softmax_one": (attend(DOT, normaliser="softmax_one"), {"kv_heads": "1/2"}, "softmax_one"),
    "same_weights": ((*TWICE, ("multiply", [2, 3])), {}, "same_weights"),
    "same_weights_groups": ((*TWICE, ("add", [2, 3])), {"kv_heads": "1/4"}, "same_weights"),
    "shared_weights": (attend(DOT), SHARED | {"has_wq": False, "has_wk": False}, "shared_weights"),
    "shared_weights_one": (
        attend(DOT, normaliser="softmax_one"),
        SHARED | {"has_wq": False, "has_wk": False, "merge": "sum"},
        "shared_weights",
    ),
    "grouped_heads": (attend(DOT), {"kv_heads": "1/4"}, "grouped_heads"),
    "one_raw_key": (attend(DOT), SHARED | {"has_wk": False}, "dot_product"),
}


def calls(genome: Genome, fuse: object = True) -> int:
    return emit(genome, 32, 8, fuse=fuse).count("dot_product_attention(")  # type: ignore[arg-type]


def masks(n: int) -> dict[str, dict[str, Any]]:
    allowed = torch.rand(n, n) > 0.3
    empty = allowed.clone()
    empty[min(7, n - 1)] = False  # a query that sees nothing gets zeros
    padding = (torch.arange(n) >= n - 2).expand(2, n)
    return {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "mask": {"attn_mask": allowed.expand(2, 1, n, n), "key_padding_mask": padding},
        "row": {"attn_mask": empty},
    }


def check_equal(genome: Genome, n: int, given: dict[str, Any]) -> None:
    """Values and all gradients, by the generated module and the interpreter."""
    x = torch.randn(2, n, 32, dtype=torch.float64)
    found = [values_and_gradients(block, x, **given) for block in both(genome, 32, 8)]
    for ours, theirs in zip(*found, strict=True):
        assert bool(torch.isfinite(ours).all())
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [9, LONG])
@pytest.mark.parametrize(
    ("kind", "is_causal"),
    [("none", False), ("none", True), ("padding", False), ("mask", True), ("row", False)],
)
@pytest.mark.parametrize("case", CASES)
def test_a_lowered_graph_equals_the_interpreter(
    genome: Build, case: str, kind: str, is_causal: bool, n: int
) -> None:
    nodes, projections, _ = CASES[case]
    check_equal(genome(*nodes, **projections), n, masks(n)[kind] | {"is_causal": is_causal})


@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_switched_off_alone(genome: Build, case: str) -> None:
    nodes, projections, rule = CASES[case]
    found = genome(*nodes, **projections)
    without = [name for name in RULES if name != rule]
    assert calls(found) == 1
    if rule == "grouped_heads":
        assert "repeat_heads(k, self.heads)" in emit(found, 32, 8, fuse=without)
        assert "repeat_heads(k, self.heads)" not in emit(found, 32, 8)
    else:
        assert calls(found, fuse=without) == 0
    blocks = []
    for fuse in (True, without, False):
        torch.manual_seed(0)
        blocks.append(build_attention(found, 32, 8, fuse=fuse).double())
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    for block in blocks[1:]:
        assert list(block.state_dict()) == list(blocks[0].state_dict())
        torch.testing.assert_close(block(x), blocks[0](x), rtol=1e-9, atol=1e-9)


def test_every_rule_has_a_case() -> None:
    assert {rule for _, _, rule in CASES.values()} == set(RULES)


@pytest.mark.parametrize("fuse", [["dot_produkt"], "softmax", ["cosine", ""]])
def test_a_rule_that_does_not_exist_is_refused(fuse: object) -> None:
    with pytest.raises(ConfigError, match="expected True, False or a collection of dot_product"):
        build_attention(MECHANISMS["mha"].genome, 16, 2, fuse=fuse)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "case", ["cosine", "sum", "softmax_one", "same_weights", "distance_groups"]
)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("global_tokens", [0, 2])
def test_lowered_graphs_run_in_windows(
    genome: Build, case: str, is_causal: bool, global_tokens: int
) -> None:
    nodes, projections, _ = CASES[case]
    seen = Visibility(12, global_tokens)
    found = replace(genome(*nodes, **projections), visibility=seen)
    assert "by_windows(" in emit(found, 32, 8)
    check_equal(found, 150, masks(150)["padding"] | {"is_causal": is_causal})


@pytest.mark.parametrize("case", ["distance", "sum", "temperature", "same_weights"])
def test_lowered_graphs_take_parts_beside_what_is_not(
    genome: Build, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that is lowered and one that is not, in one method for some queries at a time."""
    nodes, projections, _ = CASES[case]
    last = len(nodes)
    other = (("cosine", "kq"), ("sigmoid", [last]), ("weighted_sum", [last + 1, "v"]))
    both_ways = genome(*nodes, *other, ("add", [last - 1, last + 2]), **projections)
    assert "by_rows(" in emit(both_ways, 32, 8)
    assert calls(both_ways) == 1
    assert set(check_parts(both_ways, monkeypatch)) == {0, 4, 8}


def spoken(genome: Genome, rng: np.random.Generator) -> Genome:
    """A random genome with scores and softmaxes that lowering knows in place of the others."""
    known = {
        "score": ("scaled_dot_product", "bilinear", "cosine", "distance"),
        "normalize": ("softmax", "softmax", "softmax_one"),
        "adjust": ("temperature",),
    }
    nodes = []
    for node in genome.nodes:
        role = get(node.op).signatures[0].role
        op = str(rng.choice(known[role])) if role in known else node.op
        nodes.append(replace(node, op=op, params=() if role in known else node.params))
    return replace(genome, nodes=tuple(nodes))


def matching(count: int, seed: int) -> list[Genome]:
    """Random genomes in which some aggregation is lowered."""
    rng = np.random.default_rng(seed)
    found: list[Genome] = []
    while len(found) < count:
        for genome in random_genomes("attention_v2", 20, seed=int(rng.integers(2**31))):
            candidate = spoken(genome, rng)
            if lower(make_plan(candidate), RULES):
                found.append(candidate)
    return found[:count]


def test_random_lowered_genomes_equal_the_interpreter() -> None:
    kinds = list(masks(4))
    for number, found in enumerate(matching(24, seed=3)):
        n = (11, LONG)[number % 2]
        is_causal = number % 3 == 0 and not make_plan(found).unsafe
        given = masks(n)[kinds[number % 4]] | {"is_causal": is_causal}
        check_equal(found, n, given)


@pytest.mark.slow
def test_400_random_lowered_genomes_equal_the_interpreter() -> None:
    kinds = list(masks(4))
    for number, found in enumerate(matching(400, seed=4)):
        n = (11, LONG)[number % 2]
        is_causal = number % 3 == 0 and not make_plan(found).unsafe
        check_equal(found, n, masks(n)[kinds[number % 4]] | {"is_causal": is_causal})


@pytest.mark.parametrize("case", CASES)
def test_lowered_sources_stand_alone(genome: Build, case: str) -> None:
    """Written as a file that imports torch alone, they give the interpreter's numbers."""
    nodes, projections, _ = CASES[case]
    found = genome(*nodes, **projections)
    scope: dict[str, Any] = {}
    exec(export_module(found, 32, 8, Origin("a test")), scope)
    assert scope["self_test"]() < 1e-9
    assert max(len(line) for line in emit(found, 32, 8).splitlines()) <= 100


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
def test_no_tensor_holds_a_number_for_each_pair(genome: Build, case: str) -> None:
    nodes, projections, _ = CASES[case]
    block = build_attention(genome(*nodes, **projections), 32, 8)
    n = 1024
    with Largest() as largest:
        block(torch.randn(1, n, 32)).square().sum().backward()
    assert largest.numbers < n**2
