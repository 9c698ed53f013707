"""New, replayed, rejected; a generation is filled with new ones alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from nas.errors import GenomeError
from nas.genome import Genome, Node
from nas.mechanisms import mechanism
from nas.search.novelty import ILLEGAL, MAX_ATTEMPTS, Attempt, fill, new_ones
from nas.variation import Variation

MHA, GQA = mechanism("mha").genome, mechanism("gqa").genome


def test_novelty_the_first_is_new_and_the_second_replayed(kit: Any) -> None:
    novelty = kit.novelty()
    first = novelty.judge(Attempt(MHA, "mechanism:mha"))
    again = novelty.judge(Attempt(MHA, "crossover", (first.digest,)))
    assert (first.outcome, again.outcome) == ("new", "replayed")
    assert first.key == again.key
    assert first.digest == again.digest
    assert (again.origin, again.parents) == ("crossover", (first.digest,))


def test_novelty_knows_what_is_equal_in_canonical_form_only(kit: Any) -> None:
    dead = Node("gelu", ("v",))
    shifted = tuple(
        dataclasses.replace(n, inputs=tuple(r + 1 if isinstance(r, int) else r for r in n.inputs))
        for n in MHA.nodes
    )
    novelty = kit.novelty()
    written = novelty.judge(Attempt(Genome((dead, *shifted), MHA.projections), "sample"))
    assert written.is_new
    assert written.genome == MHA
    assert novelty.judge(Attempt(MHA, "sample")).outcome == "replayed"


def test_novelty_knows_what_is_equal_at_the_tasks_sizes_only(kit: Any) -> None:
    novelty = kit.novelty()
    gqa = novelty.judge(Attempt(GQA, "mechanism:gqa"))
    mqa = novelty.judge(Attempt(mechanism("mqa").genome, "mechanism:mqa"))
    assert gqa.digest != mqa.digest
    assert gqa.key == mqa.key  # a quarter of four heads is one
    assert mqa.outcome == "replayed"


def test_novelty_rejects_what_does_not_exist_at_the_tasks_sizes(kit: Any) -> None:
    def key(genome: Genome) -> str:
        raise GenomeError("3/4 of 2 heads is no whole number")

    rejected = kit.novelty(key).judge(Attempt(GQA, "sample"))
    assert (rejected.outcome, rejected.key) == ("rejected", None)
    assert rejected.note == "3/4 of 2 heads is no whole number"


def test_novelty_rejects_what_the_policy_forbids(kit: Any) -> None:
    raw = Genome((Node("scaled_dot_product", ("q", "k")), Node("weighted_sum", (0, "v"))))
    rejected = kit.novelty().judge(Attempt(raw, "crossover"))
    assert (rejected.outcome, rejected.key) == ("rejected", None)
    assert rejected.note.startswith(ILLEGAL)


@pytest.mark.parametrize("space", ["small", "tiny"])
def test_novelty_rejects_no_variation(kit: Any, space: str) -> None:
    space = {"small": kit.space, "tiny": kit.tiny}[space]
    variation, rng, novelty = Variation(space, kit.policy), np.random.default_rng(0), kit.novelty()
    pool = [variation.sample(rng) for _ in range(100)]
    pool += [variation.mutate(genome, rng, i % 3 + 1)[0] for i, genome in enumerate(pool)]
    pool += [variation.crossover(a, b, rng)[0] for a, b in zip(pool, pool[::-1], strict=True)]
    judged = [novelty.judge(Attempt(genome, "variation")) for genome in pool]
    assert [p.note for p in judged if p.outcome == "rejected"] == []


def test_fill_tries_until_enough_are_new(kit: Any) -> None:
    genomes = [MHA, MHA, GQA, MHA, GQA, mechanism("ssqa").genome]
    tried = fill(kit.novelty(), 3, lambda _: Attempt(genomes.pop(0), "sample"))
    assert [p.outcome for p in tried] == ["new", "replayed", "new", "replayed", "replayed", "new"]
    assert len(new_ones(tried)) == 3
    assert genomes == []


def test_fill_counts_failures_in_a_row_and_gives_up(kit: Any) -> None:
    told: list[int] = []

    def draw(num_failed: int) -> Attempt:
        told.append(num_failed)
        return Attempt(MHA, "sample")

    tried = fill(kit.novelty(), 3, draw)
    assert told == [0, *range(MAX_ATTEMPTS)]
    assert len(new_ones(tried)) == 1
    assert len(tried) == 1 + MAX_ATTEMPTS
