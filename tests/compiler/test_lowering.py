"""Every rule of lowering: taken where it applies, switched off alone, equal to the interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nas.common.errors import ConfigError, NasError
from nas.compiler import build_attention, emit, make_plan, rules
from nas.compiler.lowering import lower
from nas.genome import Genome, Visibility
from nas.genome.mechanisms import MECHANISMS
from tests.compiler.kernels.test_rows import check_parts
from tests.compiler.test_compiler import check_equal, masks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Build = Callable[..., Genome]
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
CURVE = ("softcap", [0], {"cap": 2.0})
GATE = ("forget_gate", "v")
TWICE_OF_0 = (("softmax", [0]), ("weighted_sum", [1, "v"]), ("weighted_sum", [1, "k"]))
TWICE = (DOT, *TWICE_OF_0)
# Graphs by name, each with its projections and the rule without which it is not that call.
CASES: dict[str, tuple[Nodes, dict[str, Any], str]] = {
    "dot_product": (attend(DOT), {}, "scaled_dot_product"),
    "narrow": (attend(DOT), {"qk_dim": "1/2"}, "scaled_dot_product"),
    "bilinear": (attend(("bilinear", "qk")), {}, "bilinear"),
    "cosine": (attend(("cosine", "qk")), {}, "cosine"),
    "distance": (attend(("distance", "qk")), {}, "distance"),
    "distance_groups": (attend(("distance", "qk")), {"kv_heads": "1/4"}, "distance"),
    "temperature": (attend(DOT, ("temperature", [0])), {"kv_heads": "1/2"}, "temperature"),
    "sharp_distance": (attend(("distance", "qk"), ("temperature", [0])), {}, "temperature"),
    "sum": (attend(DOT, ("bilinear", "vq"), ("add", [0, 1])), {"kv_heads": "1/4"}, "add"),
    "sum_one_key": (attend(DOT, ("bilinear", "vk"), ("add", [0, 1])), {}, "add"),
    "sum_one_query": (attend(DOT, ("scaled_dot_product", "qv"), ("add", [0, 1])), {}, "add"),
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
    "shared_weights": (attend(DOT), SHARED | {"has_wq": False, "has_wk": False}, "shared_weights"),
    "shared_weights_one": (
        attend(DOT, normaliser="softmax_one"),
        SHARED | {"has_wq": False, "has_wk": False, "merge": "sum"},
        "shared_weights",
    ),
    "groups": (attend(DOT), {"kv_heads": "1/4"}, "scaled_dot_product"),
    "key_bias": (attend(DOT, ("key_bias", [0, "k"])), {"kv_heads": "1/4"}, "key_bias"),
    "key_bias_other": (
        attend(("distance", "qk"), ("key_bias", [0, "v"])),
        {"kv_heads": "1/4", "has_wv": False},
        "key_bias",
    ),
    "key_bias_silent": (
        attend(("cosine", "qk"), ("key_bias", [0, "v"]), normaliser="softmax_one"),
        {},
        "key_bias",
    ),
    "alibi": (attend(DOT, ("alibi", [0])), {"kv_heads": "1/4"}, "alibi"),
    "sharp_alibi": (
        attend(
            DOT,
            ("alibi", [0]),
            ("temperature", [1]),
            ("cosine", "vk"),
            ("alibi", [3]),
            ("add", [2, 4]),
            ("key_bias", [5, "k"]),
        ),
        {},
        "alibi",
    ),
    "decay": (attend(DOT, GATE, ("decay", [0, 1])), {"kv_heads": "1/4"}, "decay"),
    "decay_twice": (
        attend(
            DOT,
            GATE,
            ("decay", [0, 1]),
            ("forget_gate", "v", {"form": "exponential"}),
            ("decay", [2, 3]),
            ("alibi", [4]),
            ("key_bias", [5, "k"]),
        ),
        {},
        "decay",
    ),
    "decay_sum": (
        attend(DOT, GATE, ("decay", [0, 1]), ("cosine", "vk"), ("decay", [3, 1]), ("add", [2, 4])),
        {},
        "decay",
    ),
    "softcap": (attend(DOT, CURVE), {"kv_heads": "1/4"}, "softcap"),
    "softcap_decay": (
        attend(DOT, CURVE, GATE, ("decay", [1, 2]), normaliser="sigmoid"),
        {"kv_heads": "1/2"},
        "softcap",
    ),
    "softcap_alibi": (
        attend(DOT, CURVE, ("alibi", [1]), normaliser="sigmoid"),
        {"kv_heads": "1/2"},
        "softcap",
    ),
    "softcap_key_bias": (attend(DOT, ("key_bias", [0, "v"]), ("softcap", [1])), {}, "softcap"),
    "sigmoid": (attend(DOT, normaliser="sigmoid"), {"kv_heads": "1/4"}, "sigmoid"),
    "sigmoid_over_length": (
        (DOT, ("sigmoid", [0], {"length_bias": True}), ("weighted_sum", [1, "v"])),
        {},
        "sigmoid",
    ),
    "softmax_free": (attend(DOT, normaliser="softmax_free"), {"kv_heads": "1/4"}, "softmax_free"),
    "softmax_free_key_bias": (
        attend(("cosine", "qk"), ("key_bias", [0, "v"]), normaliser="softmax_free"),
        {"kv_heads": "1/2"},
        "softmax_free",
    ),
    "sum_of_values": (
        (DOT, ("softmax_free", [0], {"divide": False}), ("weighted_sum", [1, "v"])),
        {"kv_heads": "1/4"},
        "softmax_free",
    ),
    "ratio": (attend(*POSITIVE, normaliser="ratio"), {"kv_heads": "1/4"}, "ratio"),
    "ratio_of_sums": (
        (
            *POSITIVE,
            ("feature_softmax", "v"),
            ("scaled_dot_product", [1, 3]),
            ("add", [2, 4]),
            ("ratio", [5]),
            ("weighted_sum", [6, "v"]),
            ("weighted_sum", [6, "k"]),
            ("add", [7, 8]),
        ),
        {},
        "ratio",
    ),
    "ratio_of_shared_heads": (
        (*POSITIVE, ("ratio", [2]), ("weighted_sum", [3, "v"])),
        SHARED | {"has_wq": False, "has_wk": False},
        "ratio",
    ),
    "softmax_sink": (attend(DOT, normaliser="softmax_sink"), {"kv_heads": "1/2"}, "softmax_sink"),
    "softmax_sink_key_bias": (
        attend(("cosine", "qk"), ("key_bias", [0, "v"]), normaliser="softmax_sink"),
        {},
        "softmax_sink",
    ),
    "quadratic": (
        attend(("quadratic_product", "qk"), normaliser="ratio"),
        {"kv_heads": "1/2"},
        "quadratic_product",
    ),
    "gated": (
        (("forget_gate", "k"), ("gated_product", ["q", "k", 0]), *GATED),
        {"kv_heads": "1/4"},
        "gated_product",
    ),
    "gated_features": (
        (("feature_gate", "k"), ("gated_product", ["q", "k", 0]), *GATED),
        {},
        "gated_product",
    ),
    "uniform": (attend(DOT, normaliser="uniform"), {"kv_heads": "1/4"}, "uniform"),
    "same_scores": (attend(DOT, ("temperature", [0]), ("add", [0, 1])), {}, "same_scores"),
    "one_raw_key": (attend(DOT), SHARED | {"has_wk": False}, "scaled_dot_product"),
}


CALLS = (
    "dot_product_attention(",
    "shaped_attention(",
    "linear_attention(",
    "visible_mean(",
)


def calls(genome: Genome, fuse: object = True) -> int:
    source = emit(genome, 32, 8, fuse=fuse)  # type: ignore[arg-type]
    return sum(source.count(name) for name in CALLS)


@pytest.mark.parametrize("kind", masks(1))
@pytest.mark.parametrize("case", CASES)
def test_a_lowered_graph_equals_the_interpreter(genome: Build, case: str, kind: str) -> None:
    """Of many tokens; few, with every kind of mask, are in test_plain."""
    nodes, projections, _ = CASES[case]
    given = masks(LONG)[kind] | {"is_causal": kind != "row"}
    check_equal(genome(*nodes, **projections), LONG, given)


@pytest.mark.parametrize("case", CASES)
def test_a_rule_is_switched_off_alone(genome: Build, case: str) -> None:
    nodes, projections, rule = CASES[case]
    found = genome(*nodes, **projections)
    without = [name for name in rules() if name != rule]
    assert calls(found) == 1
    assert calls(found, fuse=without) == 0
    assert max(len(line) for line in emit(found, 32, 8).splitlines()) <= 100
    blocks = []
    for fuse in (True, without, False):
        torch.manual_seed(0)
        blocks.append(build_attention(found, 32, 8, fuse=fuse).double())
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    for block in blocks[1:]:
        assert list(block.state_dict()) == list(blocks[0].state_dict())
        torch.testing.assert_close(block(x), blocks[0](x), rtol=1e-9, atol=1e-9)


def test_a_ratio_of_scores_of_unknown_sign_is_not_lowered(genome: Build) -> None:
    found = genome(*attend(DOT, normaliser="ratio"))
    assert calls(found) == 0
    check_equal(found, 40, {"is_causal": True})


def test_every_rule_has_a_case() -> None:
    assert {rule for _, _, rule in CASES.values()} == set(rules())


@pytest.mark.parametrize("fuse", [["dot_produkt"], "softmax", ["cosine", ""]])
def test_an_unknown_rule_raises_an_error(fuse: object) -> None:
    with pytest.raises(ConfigError, match="expected True, False or a collection of add"):
        build_attention(MECHANISMS["mha"].genome, 16, 2, fuse=fuse)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "case",
    [
        "cosine",
        "sum",
        "softmax_one",
        "same_weights",
        "distance_groups",
        "alibi",
        "softcap_alibi",
        "decay_sum",
        "softcap_decay",
        "key_bias_other",
        "sigmoid_over_length",
        "softmax_free",
        "sum_of_values",
        "ratio",
        "softmax_sink",
        "uniform",
    ],
)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("global_tokens", [0, 2])
def test_lowered_graphs_run_in_windows(
    genome: Build, case: str, is_causal: bool, global_tokens: int
) -> None:
    nodes, projections, _ = CASES[case]
    seen = Visibility(12, global_tokens)
    found = replace(genome(*nodes, **projections), visibility=seen)
    has_places = "alibi" in case and global_tokens > 0
    assert has_places or "by_windows(" in emit(found, 32, 8)
    check_equal(found, 150, masks(150)["padding"] | {"is_causal": is_causal})


@pytest.mark.parametrize(
    "case",
    ["distance", "sum", "temperature", "same_weights", "alibi", "softcap", "decay", "uniform"],
)
def test_lowered_and_other_aggregations_run_in_one_method(
    genome: Build, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that is lowered and one that is not, in one method for some queries at a time."""
    nodes, projections, _ = CASES[case]
    last = len(nodes)
    other = (("cosine", "kq"), ("sparsemax", [last]), ("weighted_sum", [last + 1, "k"]))
    both_ways = genome(*nodes, *other, ("add", [last - 1, last + 2]), **projections)
    assert "by_rows(" in emit(both_ways, 32, 8)
    assert calls(both_ways) == 1
    assert set(check_parts(both_ways, monkeypatch)) == {0, 4, 8}


def drawn(rng: np.random.Generator) -> Genome:
    """A random graph of all that lowering knows: sums, changes and readers of shared scores."""
    nodes: list[dict[str, Any]] = []

    def pick(several: Sequence[Any]) -> Any:
        return several[int(rng.integers(len(several)))]

    def add(op: str, *inputs: Any, **params: Any) -> int:
        nodes.append({"op": op, "inputs": list(inputs), "params": params})
        return len(nodes) - 1

    pairs = ("scaled_dot_product", "bilinear", "cosine", "distance")
    scores = [add(pick(pairs), pick("qqqkv"), pick("kkkqv")) for _ in range(rng.integers(1, 4))]
    for _ in range(rng.integers(5)):
        op = pick(("temperature", "add", "add", "key_bias", "alibi", "softcap", "decay"))
        gate = [add("forget_gate", "v")] if op == "decay" else []
        second = {"add": [pick(scores)], "key_bias": [pick("kkv")]}.get(op, gate)
        params = {"cap": 2.0} if op == "softcap" else {}
        scores.append(add(op, pick(scores), *second, **params))
    sums: list[int] = []
    for _ in range(rng.integers(1, 3)):
        names = ("softmax",) * 4 + ("softmax_one", "sigmoid", "softmax_free", "uniform")
        weights = add(pick(names), pick(scores[-2:]))
        sums += [add("weighted_sum", weights, pick("vvk")) for _ in range(pick((1, 1, 2)))]
    while len(sums) > 1:
        sums = [add("add", sums[0], sums[1]), *sums[2:]]
    flags = {f"has_w{stream}": bool(rng.integers(3)) for stream in "qkv"}
    labels = {
        "q_heads": pick(("all", "all", "1/2", "one")),
        "kv_heads": pick(("all", "all", "1/4", "one")),
        "qk_dim": pick(("all", "all", "1/2")),
        "raw": pick(("slice", "slice", "shared")),
        "merge": pick(("concat", "concat", "sum")),
    }
    found = Genome.from_dict({"graph_def": nodes, "proj_config": flags | labels})
    window = pick((None, None, None, 12))
    return replace(found, visibility=Visibility(window, int(rng.integers(3)) if window else 0))


def matching(count: int, seed: int) -> Iterator[Genome]:
    """Random genomes that exist and in which some aggregation is lowered."""
    rng = np.random.default_rng(seed)
    while count:
        candidate = drawn(rng)
        with contextlib.suppress(NasError):
            build_attention(candidate, 32, 8)
            if lower(make_plan(candidate)):
                count -= 1
                yield candidate


def test_random_lowered_genomes_equal_the_interpreter() -> None:
    rng = np.random.default_rng(3)
    for number, found in enumerate(matching(60, seed=3)):
        n = (11, 11, LONG, 150)[number % 4]
        kind = list(masks(4))[int(rng.integers(4))]
        check_equal(found, n, masks(n)[kind] | {"is_causal": bool(rng.integers(2))})


class Largest(TorchDispatchMode):
    """The most numbers that any operation gives."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, tuple) else (out,):
            if isinstance(item, Tensor):
                self.numbers = max(self.numbers, item.numel())
        return out


# Cases whose scores no kernel of a CPU makes.
EXPLICIT = ("alibi", "softcap", "sigmoid", "decay")


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.find("alibi") < 0 and not case.startswith(EXPLICIT)],
)
def test_no_tensor_has_a_number_for_each_pair(genome: Build, case: str) -> None:
    nodes, projections, _ = CASES[case]
    block = build_attention(genome(*nodes, **projections), 32, 8)
    n = 1024
    with Largest() as largest:
        block(torch.randn(1, n, 32)).square().sum().backward()
    assert largest.numbers < n**2


@pytest.mark.parametrize("case", ["alibi", "sharp_alibi", "decay", "decay_twice", "decay_sum"])
def test_causal_slopes_and_gates_store_no_number_for_each_pair(genome: Build, case: str) -> None:
    nodes, projections, _ = CASES[case]
    block = build_attention(genome(*nodes, **projections), 32, 8)
    with Largest() as largest:
        block(torch.randn(1, 1024, 32), is_causal=True).square().sum().backward()
    assert largest.numbers < 1024**2


def test_operations_on_tokens_get_causal_masks_only_where_they_hide_a_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mamba2 = MECHANISMS["mamba2"].genome
    left = torch.zeros(2, 9, dtype=torch.bool)
    left[0, :3] = True
    check_equal(mamba2, 9, {"key_padding_mask": left, "is_causal": True})
    whole = "seen = visible_keys(x, attn_mask, key_padding_mask, is_causal)"
    assert whole not in emit(mamba2, 32, 8)
    # A plug-in's operation may use its mask for pairs.
    step = next(s for s in make_plan(mamba2).steps if "mask" in s.primitive.extras)
    monkeypatch.setattr(step.primitive.module, "__module__", "mine")
    assert whole in emit(mamba2, 32, 8)


@pytest.mark.parametrize("case", ["uniform", "softmax_free"])
def test_unread_streams_are_not_computed(genome: Build, case: str) -> None:
    """A mean has no queries; a linear sum no weights."""
    nodes, projections, _ = CASES[case]
    found = genome(*nodes, **projections)
    assert ("self.wq(" in emit(found, 32, 8)) == (case == "softmax_free")
    has_query = "wq.weight" in build_attention(found, 32, 8).state_dict()
    assert has_query == (case == "softmax_free")


@pytest.mark.parametrize(
    "nodes",
    [
        (("scaled_dot_product", "qk"), ("sparsemax", [0]), ("weighted_sum", [1, "v"])),
        # A curve that is not the last change of its products.
        (
            ("scaled_dot_product", "qk"),
            ("softcap", [0]),
            ("temperature", [1]),
            ("softmax", [2]),
            ("weighted_sum", [3, "v"]),
        ),
        # What softmax_one sees and softmax does not.
        (("distance", "qk"), ("softmax_one", [0]), ("weighted_sum", [1, "v"])),
        (
            ("scaled_dot_product", "qk"),
            ("topk_filter", [0]),
            ("softmax", [1]),
            ("weighted_sum", [2, "v"]),
        ),
        # Weights and scores that somebody else reads too.
        (
            ("scaled_dot_product", "qk"),
            ("softmax", [0]),
            ("weighted_sum", [1, "v"]),
            ("weighted_sum", [1, 2]),
        ),
        (
            ("scaled_dot_product", "qk"),
            ("softmax", [0]),
            ("sparsemax", [0]),
            ("weighted_sum", [1, "v"]),
            ("weighted_sum", [2, 3]),
        ),
    ],
)
def test_graphs_without_a_rule_are_not_lowered(
    genome: Build, nodes: tuple[tuple[object, ...], ...]
) -> None:
    assert calls(genome(*nodes)) == 0
