"""Promises of every search algorithm: its searches are legal, reproducible and resumable."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final

from nas.common.objectives import Objective
from nas.costs import CostContext
from nas.genome import ModelSizes
from nas.searching.algorithm import ALGORITHMS, SearchContext, TrialResult
from nas.searching.archive import Archive
from nas.searching.filtering import CandidateFilter
from nas.searching.proposing import Proposer
from nas.space import SearchSpace
from nas.space.rules import load_policy, validate
from nas.space.space import seeds
from nas.space.vary import Variation
from nas.store import Proposal
from nas.testing.promises import Promise, keep, require

SIZES: Final = ModelSizes(32, 4, 2, 17)
OBJECTIVES: Final = (
    Objective("accuracy", "max", "fraction", "", 1.0, 0.1, is_metric=True),
    Objective("macs", "min", "MAC", "", 0.0, 5e5, is_metric=False),
    Objective("log_loss", "min", "nat", "", 0.0, 2.3, is_metric=True),
    Objective("params", "min", "count", "", 0.0, 5e4, is_metric=False),
)
_PRIMITIVES: Final = "scaled_dot_product bilinear softmax sigmoid weighted_sum gelu layer_norm"
SPACE: Final = SearchSpace.model_validate(
    {
        "name": "small",
        "nodes": {"max": 7},
        "primitives": {name: {} for name in _PRIMITIVES.split()},
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
COUNT: Final = 40  # proposals of a search, four generations
LAGS: Final = (None, 4)  # a generation, and a lag that suits a few workers


def check_algorithm(name: str) -> None:
    """Check a search algorithm against the promises of its family, without training."""
    ALGORITHMS[name]
    keep(f"the algorithm {name}", PROMISES, name)


def make_context(
    *,
    seed: int = 0,
    population: int = 10,
    space: SearchSpace = SPACE,
    objectives: tuple[Objective, ...] = OBJECTIVES[:2],
    most_trainings: float = 1,
    lag: int | None = None,
) -> SearchContext:
    """Return what a search algorithm is created with, for a small space and a small model."""
    policy = load_policy(space.policy)
    return SearchContext(
        operators=Variation(space, policy),
        mechanisms=tuple((m.name, m.genome) for m in seeds(space, policy)),
        population=population,
        objectives=objectives,
        seed=seed,
        filter=CandidateFilter(policy, CostContext(SIZES, False, False, {}), ()),
        archive=Archive(objectives, most_trainings=most_trainings),
        lag=lag,
    )


def proposer_of(name: str, **changes: Any) -> Proposer:
    """Return an object that proposes mechanisms by an algorithm, in ``make_context(**changes)``."""
    context = make_context(**changes)
    return Proposer(ALGORITHMS[name](context), context)


def result_of(proposal: Proposal, width: int = 2) -> TrialResult:
    """Return an invented training result with ``width`` numbers, computed from the proposal's key.

    One result in eight is a failure.
    """
    number = int(str(proposal.key), 16)
    if number % 8 == 0:
        return TrialResult.of(proposal, None)
    costs = tuple(float(number >> 8 * i & 255) for i in range(1, width + 1))
    return TrialResult.of(proposal, [costs])


def drive(
    proposer: Proposer, count: int, result: Callable[[Proposal], TrialResult] = result_of
) -> list[list[Proposal]]:
    """Run a search without training, in which each result arrives only when the proposer needs it.

    Returns:
        The attempts of each of ``count`` proposals: the genomes that the algorithm tried, of which
        only the last one is trained.
    """
    drawn: list[list[Proposal]] = []
    results: list[TrialResult] = []
    while len(drawn) < count:
        if not proposer.may_propose(len(drawn), len(results)):
            results.append(result(drawn[len(results)][-1]))
            continue
        drawn.append(proposer.propose(len(drawn), results))
    return drawn


@lru_cache(maxsize=32)
def driven(name: str, lag: int | None = None) -> list[list[Proposal]]:
    """Return what ``drive`` returns for ``COUNT`` proposals by an algorithm with seed 0."""
    return drive(proposer_of(name, lag=lag), COUNT)


def proposes_new_mechanisms(name: str) -> None:
    """Each proposal ends with a new mechanism: if trainings fail, and with one or four objectives.

    The last attempt of a proposal is a mechanism that was not proposed before.
    """
    searches = {f"lag {lag}": driven(name, lag) for lag in LAGS}
    searches["failed trainings"] = drive(proposer_of(name), 25, lambda p: TrialResult.of(p, None))
    for width in (1, 4):
        proposer = proposer_of(name, objectives=OBJECTIVES[:width])
        searches[f"{width} objectives"] = drive(proposer, 25, partial(result_of, width=width))
    for search, drawn in searches.items():
        keys = {attempts[-1].key for attempts in drawn if attempts[-1].is_new}
        require(len(keys) == len(drawn), f"with {search}, {len(keys)} of {len(drawn)} are new")


def proposes_legal_genomes(name: str) -> None:
    """The algorithm's proposals are legal, and lie in the search space."""
    policy = load_policy(SPACE.policy)
    for proposal in chain.from_iterable(driven(name)):
        for violation in validate(proposal.genome, policy):
            raise AssertionError(f"{proposal.formula}: {violation.message}")
        outside = proposal.operator != "mechanism" and SPACE.excludes(proposal.genome)
        require(not outside, f"{proposal.formula}: {outside}")


def follows_its_seed(name: str) -> None:
    """Equal seeds and results give equal proposals; another seed gives other proposals."""
    for lag in LAGS:
        first = driven(name, lag)[:25]
        again, other = (drive(proposer_of(name, lag=lag, seed=seed), 25) for seed in (0, 6))
        require(first == again, f"two searches of one seed differ with lag {lag}")
        require(first != other, f"two seeds give equal searches with lag {lag}")


def resumes_from_any_point(name: str) -> None:
    """After a resumption at any point the algorithm's proposals are identical."""
    for lag in LAGS:
        drawn = driven(name, lag)
        results = [result_of(attempts[-1]) for attempts in drawn]
        for begin in (1, 10, 27, COUNT - 1):
            end = min(begin + 12, COUNT)  # more than a generation
            again = proposer_of(name, lag=lag)
            again.follow(p for attempts in drawn[:begin] for p in attempts)
            proposals = [again.propose(number, results) for number in range(begin, end)]
            same = proposals == drawn[begin:end]
            require(same, f"proposals differ from number {begin} on with lag {lag}")


PROMISES: Final[tuple[Promise, ...]] = (
    proposes_new_mechanisms,
    proposes_legal_genomes,
    follows_its_seed,
    resumes_from_any_point,
)
