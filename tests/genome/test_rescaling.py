"""Factors without effect, and parameters that are equal at some sizes, in normal forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from nas.compiler import resolve
from nas.genome import Genome, ModelSizes
from nas.genome.canonical import canonicalise, digest
from tests.genome.test_algebra import check

if TYPE_CHECKING:
    from tests.genomes import Build

SIZES: Final = ModelSizes(32, 8, 2, 9)  # heads of width 4


def keyed(genome: Build, *maps: tuple[Any, ...], score: str = "cosine") -> Genome:
    """Maps of k in sequence, scored against q."""
    chain = [(op, [i - 1] if i else "k", *rest) for i, (op, *rest) in enumerate(maps)]
    key = len(chain) - 1 if chain else "k"
    n = len(chain)
    return genome(*chain, (score, ["q", key]), ("softmax", [n]), ("weighted_sum", [n + 1, "v"]))


@pytest.mark.parametrize(
    ("maps", "rest"),
    [
        ((("l2_norm",),), ()),
        ((("l2_norm",), ("rope",)), (("rope",),)),
        ((("rope",), ("l2_norm",)), (("rope",),)),
        ((("l2_norm",), ("relu",)), (("relu",),)),
        ((("rope",), ("l2_norm",), ("head_linear",)), (("rope",), ("head_linear",))),
        ((("l2_norm",), ("gelu",), ("l2_norm",)), (("l2_norm",), ("gelu",))),
    ],
)
def test_cosines_ignore_lengths_of_keys(genome: Build, maps: Any, rest: Any) -> None:
    check(keyed(genome, *maps), keyed(genome, *rest))


@pytest.mark.parametrize("between", ["gelu", "rms_norm", "token_shift"])
def test_lengths_have_an_effect_before_other_maps(genome: Build, between: str) -> None:
    old = keyed(genome, ("l2_norm",), (between,))
    assert len(canonicalise(old).nodes) == len(old.nodes)


def test_unit_length_is_idempotent(genome: Build) -> None:
    once = keyed(genome, ("l2_norm",), score="scaled_dot_product")
    check(keyed(genome, ("l2_norm",), ("l2_norm",), score="scaled_dot_product"), once)
    assert digest(once) != digest(keyed(genome, score="scaled_dot_product"))


def test_unit_length_and_rotation_commute(genome: Build) -> None:
    both = (("l2_norm",), ("rope", {"share": "1/2"}))
    forms = [keyed(genome, *maps, score="bilinear") for maps in (both, both[::-1])]
    check(*forms)


def test_a_length_that_others_read_is_kept(genome: Build) -> None:
    old = genome(
        ("l2_norm", "k"),
        ("rope", [0]),
        ("cosine", ["q", 1]),
        ("scaled_dot_product", ["q", 1]),
        ("add", [2, 3]),
        ("softmax", [4]),
        ("weighted_sum", [5, "v"]),
    )
    assert len(canonicalise(old).nodes) == len(old.nodes)
    check(old, old)


def test_relu_of_positive_features_is_removed(genome: Build) -> None:
    for op in ("elu_plus_one", "feature_softmax"):
        check(keyed(genome, (op,), ("relu",)), keyed(genome, (op,)))
    check(keyed(genome, ("relu",), ("l2_norm",), ("relu",), score="distance"),
          keyed(genome, ("relu",), ("l2_norm",), score="distance"))  # fmt: skip


def test_shares_that_rotate_as_many_features_are_equal(genome: Build) -> None:
    quarter, half, plain = (
        keyed(genome, ("rope", params), score="scaled_dot_product")
        for params in ({"share": "1/4", "base": 7.0}, {"share": "1/2"}, {})
    )
    check(quarter, half, SIZES)
    wide = ModelSizes(64, 8, 2, 9)
    assert len({resolve(found, wide).key for found in (quarter, half, plain)}) == 3


def test_ratios_ignore_lengths_of_queries_alone(genome: Build) -> None:
    def found(*of_query: str, of_key: str = "elu_plus_one") -> Genome:
        chain = [(op, [i - 1] if i else "q") for i, op in enumerate(of_query)]
        n = len(chain)
        scores = ((of_key, "k"), ("scaled_dot_product", [n - 1, n]))
        return genome(*chain, *scores, ("ratio", [n + 1]), ("weighted_sum", [n + 2, "v"]))

    check(found("elu_plus_one", "l2_norm"), found("elu_plus_one"))
    check(found("l2_norm", "relu"), found("relu"))
    keys = found("relu", of_key="l2_norm")
    assert len(canonicalise(keys).nodes) == len(keys.nodes)
