"""Placements: which layers hold a mechanism, what the others hold, and their normal form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from nas.common.errors import GenomeError
from nas.compiler import resolve
from nas.genome import ALL, PLACEMENTS, Genome, ModelSizes, Placement, Rest
from nas.genome.canonical import canonicalise, digest
from nas.genome.mechanisms import MECHANISMS

SIZES = ModelSizes(16, 4, 8, 40)
GQA = MECHANISMS["gqa"].genome
MHA = MECHANISMS["mha"].genome
ROPE = MECHANISMS["rope"].genome
PLAIN_REST = "mha:kv_heads=1/4,window=16,global_tokens=2"


def patterns(longest: int) -> Iterator[Placement]:
    for every, count, offset in product((None, *range(1, longest)), range(1, longest), range(4)):
        if every is None or (count <= every and offset < every):
            yield Placement(every, count, offset)


def plain_layers(placement: Placement, depth: int) -> list[int]:
    """The layers, from a list of periods that begins before the first layer."""
    every = placement.every or 1000
    period = [True] * placement.count + [False] * (every - placement.count)
    held = (period * (2 + depth))[(every - placement.offset) % every :]
    return [layer for layer in range(depth) if held[layer]]


def test_layers_are_those_of_a_repeated_period() -> None:
    for placement, depth in product(patterns(6), range(1, 13)):
        if layers := plain_layers(placement, depth):
            assert list(placement.layers(depth)) == layers, placement
        else:
            with pytest.raises(GenomeError, match=f"selects none of {depth} layers"):
                placement.layers(depth)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 7, 12])
def test_placements_of_the_same_layers_have_one_normal_form_at_a_depth(depth: int) -> None:
    forms: dict[tuple[int, ...], Placement] = {}
    for placement in patterns(6):
        if plain_layers(placement, depth):
            form = placement.simplified(depth)
            assert forms.setdefault(placement.layers(depth), form) == form
            assert form.layers(depth) == placement.layers(depth)
            assert form.simplified(depth) == form
    assert forms[tuple(range(depth))] == ALL
    if depth > 1:
        assert forms[0,] == PLACEMENTS["first"]


def test_a_mechanism_that_equals_the_rest_is_placed_in_all_layers() -> None:
    alternate = Placement(2)
    assert canonicalise(replace(MHA, placement=alternate)) == canonicalise(MHA)
    rotated = replace(alternate, rest=Rest(name="rope"))
    assert digest(replace(ROPE, placement=rotated)) == digest(ROPE)
    assert digest(replace(MHA, placement=rotated)) not in (digest(ROPE), digest(MHA))
    gated = MECHANISMS["forgetting"].genome
    assert digest(replace(gated, placement=Placement(2, rest=Rest(name="forgetting")))) == digest(
        gated
    )
    quarter = replace(alternate, rest=Rest(kv_heads="1/4"))
    assert digest(replace(GQA, placement=quarter)) == digest(GQA)
    assert digest(replace(GQA, placement=alternate)) != digest(GQA)
    single = replace(GQA, placement=replace(alternate, rest=Rest(kv_heads="one")))
    assert resolve(single, SIZES).key == resolve(GQA, SIZES).key  # 1/4 of four heads
    assert resolve(single, SIZES._replace(dim=32, heads=8)).key != resolve(GQA, SIZES).key


@pytest.mark.parametrize(
    ("placement", "plain", "text"),
    [
        (ALL, "all", "all"),
        (Placement(2), "alternate", "alternate"),
        (Placement(None), "first", "first"),
        (Placement(None, 2, 3), {"every": None, "count": 2, "offset": 3}, "layers 3 to 4"),
        (Placement(None, 1, 3), {"every": None, "offset": 3}, "layer 3"),
        (
            Placement(4, 3, 1, Rest("1/4", 16, 2)),
            {"every": 4, "count": 3, "offset": 1, "rest": PLAIN_REST},
            f"3 of every 4 layers, offset 1, rest {PLAIN_REST}",
        ),
        (
            Placement(4, 3, rest=Rest("1/4", 16, name="forgetting")),
            {"every": 4, "count": 3, "rest": "forgetting:kv_heads=1/4,window=16"},
            "3 of every 4 layers, rest forgetting:kv_heads=1/4,window=16",
        ),
    ],
)
def test_placement_is_written_and_read(placement: Placement, plain: object, text: str) -> None:
    genome = replace(GQA, placement=placement)
    data = genome.to_dict()
    assert data.get("placement", "all") == plain
    assert Genome.from_dict(data) == genome
    assert str(placement) == text


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        ({"evry": 4}, "placement.evry: unknown key 'evry'"),
        ({"every": 4, "offset": 4}, "offset 4; expected a count of at most every"),
        ({"every": 0}, "placement.every: found int 0"),
        ({"every": 2, "rest": "mha:window=0"}, "placement.rest.window: found int 0"),
        ({"every": 2, "rest": "mha:window=8,window=9"}, "expected a named mechanism"),
        ({"every": 2, "rest": "gqa"}, "found str 'gqa'; expected a named mechanism that"),
        ({"every": 2, "rest": "forgeting"}, "rest: found str 'forgeting'; expected"),
    ],
)
def test_invalid_placement_is_refused(placement: object, words: str) -> None:
    with pytest.raises(GenomeError) as caught:
        Genome.from_dict({"graph_def": [], "placement": placement})
    assert words in str(caught.value)
