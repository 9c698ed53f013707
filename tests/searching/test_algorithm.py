"""The contract that every algorithm keeps, run over all of them, in both forms."""

from __future__ import annotations

from typing import Any

import pytest

from nas.errors import ConfigError
from nas.searching.algorithm import ALGORITHMS, Costs, Told
from nas.searching.proposing import Proposer
from nas.store import Proposal

NAMES = ("nsga2", "random", "regularized-evolution", "local-search", "surrogate")
every_algorithm = pytest.mark.parametrize("name", NAMES)
both_forms = pytest.mark.parametrize("lag", [None, 4])


def costs_of(proposal: Proposal, width: int = 2) -> Costs | None:
    """Something that follows from the key; one in eight fails."""
    number = int(str(proposal.key), 16)
    if number % 8 == 0:
        return None
    return tuple(float(number >> 8 * i & 255) for i in range(1, width + 1))


def told_of(proposal: Proposal, width: int = 2) -> Told:
    costs = costs_of(proposal, width)
    return Told.of(proposal, None if costs is None else [costs])


def drive(proposer: Proposer, count: int, width: int = 2) -> list[list[Proposal]]:
    """Propose and tell, each result as late as it may be; give all attempts by number."""
    drawn: list[list[Proposal]] = []
    told: list[Told] = []
    while len(drawn) < count:
        if not proposer.may_propose(len(drawn), len(told)):
            last = drawn[len(told)][-1]
            told.append(told_of(last, width))
            continue
        drawn.append(proposer.propose(len(drawn), told))
    return drawn


def new_ones(drawn: list[list[Proposal]]) -> list[Proposal]:
    return [p for attempts in drawn for p in attempts if p.is_new]


@every_algorithm
@both_forms
def test_algorithm_every_proposal_ends_with_a_new_one(kit: Any, name: str, lag: int | None) -> None:
    drawn = drive(kit.proposer(name, lag), 60)
    assert all(attempts[-1].is_new for attempts in drawn)
    assert len({p.key for p in new_ones(drawn)}) == 60


@every_algorithm
@both_forms
def test_algorithm_first_come_the_named_mechanisms(kit: Any, name: str, lag: int | None) -> None:
    drawn = drive(kit.proposer(name, lag), 10)
    first = [p for attempts in drawn for p in attempts]
    assert [(p.operator, p.name) for p in first[:2]] == [
        ("mechanism", "mha"),
        ("mechanism", "ssqa"),
    ]
    assert {p.operator for p in first[2:]} == {"sample"}


@every_algorithm
def test_algorithm_a_population_smaller_than_the_mechanisms(kit: Any, name: str) -> None:
    drawn = drive(kit.proposer(name, population=1), 3)
    assert drawn[0][0].name == "mha"
    assert all(p.name is None for attempts in drawn[1:] for p in attempts)


@every_algorithm
@both_forms
def test_algorithm_made_and_told_alike_proposes_alike(kit: Any, name: str, lag: int | None) -> None:
    one, two, other = (drive(kit.proposer(name, lag, seed=s), 40) for s in (5, 5, 6))
    assert one == two != other


@every_algorithm
@both_forms
def test_algorithm_follows_the_record_from_any_point(kit: Any, name: str, lag: int | None) -> None:
    drawn = drive(kit.proposer(name, lag), 45)
    told = [told_of(p) for attempts in drawn for p in attempts[-1:]]
    for begin in (1, 10, 27, 44):
        again = kit.proposer(name, lag)
        again.follow(p for attempts in drawn[:begin] for p in attempts)
        assert [again.propose(n, told) for n in range(begin, 45)] == drawn[begin:]


@every_algorithm
def test_algorithm_goes_on_when_every_training_failed(kit: Any, name: str) -> None:
    proposer = kit.proposer(name)
    told: list[Told] = []
    for number in range(40):
        last = proposer.propose(number, told[: number - number % 10])[-1]
        assert last.is_new
        told.append(Told.of(last, None))


@every_algorithm
@pytest.mark.parametrize("width", [1, 4])
def test_algorithm_takes_any_number_of_objectives(kit: Any, name: str, width: int) -> None:
    objectives = (kit.accuracy, kit.macs, kit.log_loss, kit.params)[:width]
    assert len(new_ones(drive(kit.proposer(name, objectives=objectives), 40, width))) == 40


@every_algorithm
@both_forms
def test_algorithm_names_parents_whose_results_were_told(
    kit: Any, name: str, lag: int | None
) -> None:
    drawn = drive(kit.proposer(name, lag), 60)
    digests = [attempts[-1].digest for attempts in drawn]
    for number, attempts in enumerate(drawn):
        known = digests[: number - number % 10 if lag is None else max(0, number - lag + 1)]
        assert {d for p in attempts for d in p.parents} <= set(known)
    assert any(p.parents for p in drawn[-1]) is (name != "random")


def test_algorithm_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"did you mean 'nsga2'\?.*random, regularized-evolution, local"
    ):
        ALGORITHMS.get("nsga3")
    assert set(NAMES) <= set(ALGORITHMS.names())
