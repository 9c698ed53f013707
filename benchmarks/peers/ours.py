"""Our algorithms on the same budget of trainings, on genomes.

They run as in ``nas search``: they start from named mechanisms, know costs before a training,
re-evaluate, and report the front of their estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.peers.problem import Bench, Problem, TableFilter
from nas.common.objectives import limits_of
from nas.searching.algorithm import ALGORITHMS, SearchContext, TrialResult
from nas.searching.archive import Archive, front_members
from nas.searching.proposing import Proposer
from nas.space.space import seeds
from nas.space.vary import Variation

POPULATION = 12


def ours(
    name: str, population: int = POPULATION, lag: int | None = None
) -> Callable[[Problem, int], None]:
    """Return a function that runs one of our algorithms with some population and lag."""

    def search(problem: Problem, seed: int) -> None:
        results: list[TrialResult] = []
        problem.report = lambda after: front(archive_of(problem.bench, results[:after]))
        search_into(results, name, context_of(problem, seed, population, lag), problem)

    return search


def archive_of(bench: Bench, results: Sequence[TrialResult]) -> Archive:
    """Return an archive, which computes estimates, with these results."""
    archive = Archive(bench.objectives)
    archive.tell(results)
    return archive


def front(archive: Archive) -> list[str]:
    """Return the digests of the front by estimates, the best quality first."""
    rows, _ = archive.estimates()
    members = np.flatnonzero(front_members(rows, np.array(limits_of(archive.objectives))))
    return [archive.known[i].key for i in members[np.argsort(rows[members, 0])]]


def search_into(
    results: list[TrialResult], name: str, context: SearchContext, problem: Problem
) -> None:
    """Search, and append each result to ``results``."""
    proposer = Proposer(ALGORITHMS[name](context), context)
    for number in range(problem.budget):
        proposal = proposer.propose(number, results)[-1]
        if not proposal.is_trained or proposal.key is None:
            break  # the space is exhausted
        score = problem.evaluate(proposal.key)
        results.append(TrialResult.of(proposal, [score]))


def context_of(
    problem: Problem, seed: int, population: int = POPULATION, lag: int | None = None
) -> SearchContext:
    """Return the space, operators and settings of a search.

    Args:
        population: number of proposals in a generation.
        lag: see ``nas.common.objectives.SearchConfig``.
    """
    bench = problem.bench
    space, policy, objectives = bench.space, bench.policy, bench.objectives
    named = seeds(space, policy, bench.table.setting.is_causal)
    mechanisms = tuple((m.name, m.genome) for m in named)
    if problem.initial:
        mechanisms = tuple((key, bench.mechanisms[key][0]) for key in problem.initial)
    candidate_filter = TableFilter(policy, bench.table)
    candidate_filter._inspected = bench.filter._inspected  # a cache shared by all searches
    operators = Variation(space, policy, bench.table.setting.is_causal)
    archive = Archive(objectives, most_trainings=problem.measure.most_trainings)
    return SearchContext(
        operators, mechanisms, population, objectives, seed, candidate_filter, archive, lag
    )
