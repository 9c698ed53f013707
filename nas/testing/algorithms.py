"""What every algorithm promises: a search by it is legal, repeatable, and resumed to the bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nas.common.objectives import Objective
from nas.costs import CostContext
from nas.genome import ModelSizes
from nas.searching.algorithm import ALGORITHMS, Materials
from nas.searching.archive import Archive
from nas.searching.judging import Judge
from nas.searching.proposing import Proposer
from nas.searching.told import Costs, Told
from nas.space import SearchSpace
from nas.space.seeding import seeds
from nas.space.validation import Policy, load_policy, validate
from nas.space.variation import Variation
from nas.store import Proposal
from nas.testing.promises import Promise, keep, require

SIZES: Final = ModelSizes(32, 4, 2, 17)
OBJECTIVES: Final = (
    Objective("accuracy", "max", "fraction", "", 1.0, 0.1, is_metric=True),
    Objective("macs", "min", "MAC", "", 0.0, 5e5, is_metric=False),
    Objective("log_loss", "min", "nat", "", 0.0, 2.3, is_metric=True),
    Objective("params", "min", "count", "", 0.0, 5e4, is_metric=False),
)
SPACE: Final = SearchSpace.model_validate(
    {
        "name": "small",
        "nodes": {"max": 7},
        "primitives": {
            "scaled_dot_product": {},
            "bilinear": {},
            "softmax": {},
            "sigmoid": {},
            "weighted_sum": {},
            "gelu": {},
            "layer_norm": {},
        },
        "projections": {
            "has_wq": [True, False],
            "has_wk": [True, False],
            "q_heads": ["all", "1/2"],
            "kv_heads": ["all", "1/2"],
        },
        "mechanisms": ["mha", "ssqa"],
        "objectives": ["quality", "macs"],
    }
)
LAGS: Final = (None, 4)  # a generation, and one that a few workers need


def check_algorithm(name: str) -> None:
    """Hold an algorithm to its family's promises, in a small space without any training.

    Raises:
        AssertionError: a promise is broken; a sentence that says which.
        ConfigError: there is no such algorithm.
    """
    ALGORITHMS.get(name)
    keep(f"the algorithm {name}", PROMISES, name)


def materials(
    policy: Policy | None = None,
    *,
    seed: int = 0,
    population: int = 10,
    space: SearchSpace = SPACE,
    objectives: tuple[Objective, ...] = OBJECTIVES[:2],
    most_trainings: float = 1,
) -> Materials:
    """What an algorithm is made from, in a small space at small sizes."""
    policy = policy or load_policy(space.policy)
    return Materials(
        operators=Variation(space, policy),
        mechanisms=tuple((m.name, m.genome) for m in seeds(space, policy)),
        population=population,
        objectives=objectives,
        seed=seed,
        judge=Judge(policy, CostContext(SIZES, False, False, {}), ()),
        archive=Archive(objectives, most_trainings=most_trainings),
    )


def proposer(name: str, lag: int | None = None, **changes: Any) -> Proposer:
    """A search's proposals by an algorithm; for ``changes`` see ``materials``."""
    found = materials(**changes)
    return Proposer(ALGORITHMS.get(name)(found), found, lag=lag)


def costs_of(proposal: Proposal, width: int = 2) -> Costs | None:
    """Something that follows from the key; one in eight fails."""
    number = int(str(proposal.key), 16)
    if number % 8 == 0:
        return None
    return tuple(float(number >> 8 * i & 255) for i in range(1, width + 1))


def told_of(proposal: Proposal, width: int = 2) -> Told:
    """A proposal's made-up result."""
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


def new_ones(drawn: Sequence[Sequence[Proposal]]) -> list[Proposal]:
    """The proposals that are to be trained for the first time."""
    return [p for attempts in drawn for p in attempts if p.is_new]


def goes_on_to_new_mechanisms(name: str) -> None:
    """Every proposal ends with a mechanism that is new."""
    for lag in LAGS:
        drawn = drive(proposer(name, lag), 60)
        require(all(attempts[-1].is_new for attempts in drawn), f"not so with lag {lag}")
        require(len({p.key for p in new_ones(drawn)}) == 60, "a mechanism comes twice")


def proposes_what_is_legal(name: str) -> None:
    """What it proposes is legal, and in the space."""
    policy = load_policy(SPACE.policy)
    for proposal in new_ones(drive(proposer(name), 40)):
        for violation in validate(proposal.genome, policy):
            raise AssertionError(f"{proposal.formula}: {violation.message}")
        outside = proposal.operator != "mechanism" and SPACE.excludes(proposal.genome)
        require(not outside, f"{proposal.formula}: {outside}")


def follows_its_seed(name: str) -> None:
    """The same seed and results give the same proposals, another seed other ones."""
    for lag in LAGS:
        one, two, other = (drive(proposer(name, lag, seed=s), 40) for s in (5, 5, 6))
        require(one == two, "two searches of one seed differ")
        require(one != other, "two seeds give one search")


def resumes_from_any_point(name: str) -> None:
    """Made again from a record of any length it proposes what it did, to the bit."""
    for lag in LAGS:
        drawn = drive(proposer(name, lag), 45)
        told = [told_of(attempts[-1]) for attempts in drawn]
        for begin in (1, 10, 27, 44):
            again = proposer(name, lag)
            again.follow(p for attempts in drawn[:begin] for p in attempts)
            found = [again.propose(number, told) for number in range(begin, 45)]
            require(found == drawn[begin:], f"not so from proposal {begin} on with lag {lag}")


def proposes_without_changing(name: str) -> None:
    """To propose changes nothing: the same generator gives the same attempt again."""
    found = materials()
    algorithm = ALGORITHMS.get(name)(found)
    told = [told_of(p) for p in new_ones(drive(proposer(name), 20))]
    found.archive.tell(told)
    algorithm.tell(told)
    attempts = [algorithm.propose(found.generator(20), 0) for _ in range(3)]
    require(attempts[0] == attempts[1] == attempts[2], "it proposes something else")


def bears_failures(name: str) -> None:
    """It goes on when every training failed."""
    found = proposer(name)
    told: list[Told] = []
    for number in range(40):
        last = found.propose(number, told[: number - number % 10])[-1]
        require(last.is_new, f"proposal {number} is not new")
        told.append(Told.of(last, None))


def takes_any_number_of_objectives(name: str) -> None:
    """It searches by one objective, and by four."""
    for width in (1, 4):
        found = proposer(name, objectives=OBJECTIVES[:width])
        require(len(new_ones(drive(found, 40, width))) == 40, f"not so by {width}")


def names_parents_that_it_was_told_of(name: str) -> None:
    """Parents are mechanisms whose results were told."""
    for lag in LAGS:
        drawn = drive(proposer(name, lag), 60)
        digests = [attempts[-1].digest for attempts in drawn]
        for number, attempts in enumerate(drawn):
            known = digests[: number - number % 10 if lag is None else max(0, number - lag + 1)]
            named = {digest for p in attempts for digest in p.parents}
            require(named <= set(known), f"proposal {number} names others")


PROMISES: Final[tuple[Promise, ...]] = (
    goes_on_to_new_mechanisms,
    proposes_what_is_legal,
    follows_its_seed,
    resumes_from_any_point,
    proposes_without_changing,
    bears_failures,
    takes_any_number_of_objectives,
    names_parents_that_it_was_told_of,
)
