from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import nas
from nas.common.errors import GenomeError
from nas.compiler import resolve
from nas.genome import Genome, ModelSizes, Visibility
from nas.genome.canonical import canonicalise, digest
from nas.genome.mechanisms import MECHANISMS
from tests.genomes import build
from tests.twins import are_twins

STANDARD = (("scaled_dot_product", "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]))


def same(a: Genome, b: Genome) -> bool:
    assert (digest(a) == digest(b)) == (canonicalise(a) == canonicalise(b))
    return digest(a) == digest(b)


def test_order_dead_nodes_and_commuting_operands_do_not_matter() -> None:
    a = build(
        ("gelu", "v"),
        ("scaled_dot_product", "qk"),
        ("softmax", [1]),
        ("add", ["v", 0]),
        ("weighted_sum", [2, 3]),
    )
    b = build(
        ("scaled_dot_product", "qk"),
        ("linear", "q"),
        ("softmax", [0]),
        ("gelu", "v"),
        ("add", [3, "v"]),
        ("weighted_sum", [2, 4]),
    )
    assert same(a, b)


def test_streams_without_projections_are_one_tensor() -> None:
    off = {"has_wq": False, "has_wk": False}
    names = ("qk", "kq", "kk", "qq")
    digests = {digest(build(("scaled_dot_product", n), *STANDARD[1:], **off)) for n in names}
    assert len(digests) == 1
    assert digest(build(*STANDARD)) not in digests


def test_queries_and_keys_change_places_with_their_projections() -> None:
    # x W_K scores against x either way: which of the two is called the query changes nothing.
    one = build(("scaled_dot_product", "qk"), *STANDARD[1:], has_wq=False)
    other = build(("scaled_dot_product", "kq"), *STANDARD[1:], has_wk=False)
    turned = build(("scaled_dot_product", "kq"), *STANDARD[1:], has_wq=False)
    assert one != other
    assert are_twins(one, other, 8, 2, 5)
    assert digest(one) == digest(other)
    # The projected one scores from the other side: the scores are transposed.
    assert not are_twins(one, turned, 8, 2, 5)
    assert digest(one) != digest(turned)
    # With fewer heads of keys and values, the streams differ in more than their names.
    few = [replace(g, projections=replace(g.projections, kv_heads="one")) for g in (one, other)]
    assert digest(few[0]) != digest(few[1])


def test_fields_without_effect_are_removed() -> None:
    off = {"has_wq": False, "has_wk": False, "has_wv": False}
    plain = build(*STANDARD, **off)
    assert same(plain, build(*STANDARD, **off, q_heads="1/2", kv_heads="1/4"))
    assert not same(plain, build(*STANDARD, **off, raw="shared"))
    assert same(build(*STANDARD), build(*STANDARD, raw="shared"))
    query_less = build(("scaled_dot_product", "vk"), *STANDARD[1:])
    unread = build(("scaled_dot_product", "vk"), *STANDARD[1:], has_wq=False, q_heads="1/2")
    assert same(query_less, unread)


def attending(*nodes: tuple[Any, ...]) -> Genome:
    """Standard attention to the last of these nodes as its values."""
    n = len(nodes)
    standard = ("scaled_dot_product", "qk"), ("softmax", [n]), ("weighted_sum", [n + 1, n - 1])
    return build(*nodes, *standard)


def test_equal_nodes_merge_only_if_they_learn_nothing() -> None:
    def doubled(op: str) -> Genome:
        return attending((op, "v"), (op, "v"), ("add", [0, 1]))

    def single(op: str) -> Genome:
        return attending((op, "v"), ("add", [0, 0]))

    assert same(doubled("gelu"), single("gelu"))
    assert not same(doubled("linear"), single("linear"))


def test_shared_and_copied_learned_nodes_have_different_digests() -> None:
    """Two copies a, b of one learned map, read as (a + b) * a or (a + b) * b: the same graph."""
    learned = ("linear", "v")
    first, second = (
        attending(learned, learned, ("add", [0, 1]), ("multiply", [2, again])) for again in (0, 1)
    )
    third = attending(learned, learned, learned, ("add", [0, 1]), ("multiply", [3, 2]))
    assert same(first, second)
    assert not same(first, third)


def test_digests_are_stable() -> None:
    """A changed digest orphans every recorded run: change the version when this must change."""
    assert digest(MECHANISMS["mha"].genome) == "6c9f6cc506a21030"
    assert digest(MECHANISMS["champion_2025"].genome) == "6e06aa0dfd8fc9ec"


@pytest.mark.parametrize("params", [{"size": 1}, {"k": 0}, {"k": "all"}])
@pytest.mark.parametrize(
    "use", [nas.validate, nas.cost, digest, lambda g: resolve(g, ModelSizes(64, 4, 2, 9))]
)
def test_parameters_of_genome_objects_are_checked(
    use: Callable[[Genome], object], params: dict[str, Any]
) -> None:
    nodes = ("scaled_dot_product", "qk"), ("topk_softmax", [0], params), ("weighted_sum", [1, "v"])
    with pytest.raises(GenomeError, match=r"node 1.* (no parameter 'size'|expected a whole)"):
        use(build(*nodes))


def test_windows_change_the_digest_and_global_tokens_only_with_a_window() -> None:
    genome = MECHANISMS["mha"].genome
    seen = [replace(genome, visibility=Visibility(w, g)) for w, g in ((8, 0), (8, 1), (16, 0))]
    assert len({digest(g) for g in (genome, *seen)}) == 4
    sizes = ModelSizes(32, 4, 2, 65)
    assert len({resolve(g, sizes).key for g in (genome, *seen)}) == 4
    assert same(genome, replace(genome, visibility=Visibility(None, 5)))
