"""A small search space, and searches in it that compute results without training."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from nas.common.objectives import Objective
from nas.costs import CostContext
from nas.genome import ModelSizes
from nas.searching.algorithm import ALGORITHMS, SearchContext, TrialResult
from nas.searching.archive import Archive
from nas.searching.filtering import CandidateFilter
from nas.searching.proposing import Proposer
from nas.space import SearchSpace
from nas.space.rules import load_policy
from nas.space.space import seeds
from nas.space.vary import Variation
from nas.store import Proposal

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
