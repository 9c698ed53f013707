"""The filter decides on normal forms at the sizes of the task."""

from __future__ import annotations

import dataclasses

import pytest

from nas.costs import CostContext
from nas.genome import Genome, ModelSizes, Node
from nas.genome.canonical import digest
from nas.genome.mechanisms import mechanism
from nas.searching.algorithm import Attempt
from nas.searching.filtering import ILLEGAL, CandidateFilter
from nas.space.rules import load_policy
from tests.searching.driving import SIZES, SPACE, drive, proposer_of, result_of


def judge(sizes: ModelSizes = SIZES) -> CandidateFilter:
    return CandidateFilter(load_policy(SPACE.policy), CostContext(sizes, False, False, {}), ())


MHA = mechanism("mha").genome


@pytest.mark.slow
def test_proposals_of_a_long_search_are_resumed() -> None:
    """Beyond 20 parts, a resumed search passes results on in the same parts as before."""
    drawn = drive(proposer_of("surrogate", lag=2), 70)
    results = [result_of(attempts[-1]) for attempts in drawn]
    again = proposer_of("surrogate", lag=2)
    again.follow(p for attempts in drawn[:61] for p in attempts)
    assert [again.propose(number, results) for number in range(61, 70)] == drawn[61:70]


def test_second_proposal_of_a_mechanism_is_replayed() -> None:
    judged = judge()
    first = judged.propose(Attempt(MHA, "mechanism", "mha"), 0, 0)
    again = judged.propose(Attempt(MHA, "crossover", parents=(first.digest,)), 1, 3)
    assert (first.verdict, again.verdict) == ("new", "replayed")
    assert (first.key, first.digest) == (again.key, again.digest)
    assert (first.name, again.operator, again.parents) == ("mha", "crossover", (first.digest,))
    assert (again.number, again.attempt) == (1, 3)
    assert first.costs["macs"] > 0
    assert again.costs == {}


def test_proposal_contains_the_normal_form() -> None:
    dead = Node("gelu", ("v",))
    shifted = tuple(
        dataclasses.replace(n, inputs=tuple(r + 1 if isinstance(r, int) else r for r in n.inputs))
        for n in MHA.nodes
    )
    written = judge().propose(Attempt(Genome((dead, *shifted), MHA.projections), "sample"), 0, 0)
    assert written.is_new
    assert written.genome == MHA
    assert written.digest == digest(MHA)


def test_genome_that_the_sizes_forbid_is_rejected() -> None:
    projections = dataclasses.replace(MHA.projections, q_heads="3/4", kv_heads="3/4")
    odd = dataclasses.replace(MHA, projections=projections)
    rejected = judge(ModelSizes(32, 2, 2, 17)).propose(Attempt(odd, "sample"), 0, 0)
    assert (rejected.verdict, rejected.key, rejected.costs) == ("rejected", None, {})
    assert "3/4 of 2" in rejected.note


def test_genome_that_the_policy_forbids_is_rejected() -> None:
    raw = Genome((Node("scaled_dot_product", ("q", "k")), Node("weighted_sum", (0, "v"))))
    rejected = judge().propose(Attempt(raw, "crossover"), 0, 0)
    assert (rejected.verdict, rejected.key) == ("rejected", None)
    assert rejected.note.startswith(ILLEGAL)
