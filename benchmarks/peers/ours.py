"""Our own algorithms on the same budget: on genomes, in generations of 12, asked and told.

They run as ``nas search`` runs them, with its repeats, and report the front of its estimates.
``plain`` is NSGA-II with the same means as everyone else: it starts from samples rather than named
mechanisms, repeats nothing, and reports its scores as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.peers.problem import Bench, Problem
from nas.common.pareto import non_dominated
from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.archive import Archive
from nas.searching.filtering import CandidateFilter
from nas.searching.proposing import Proposer
from nas.searching.results import TrialResult
from nas.space.seeding import seeds
from nas.space.variation import Variation

POPULATION = 12


def ours(name: str) -> Callable[[Problem, int], None]:
    """The search of one of our algorithms."""

    def search(problem: Problem, seed: int) -> None:
        told: list[TrialResult] = []
        problem.report = lambda after: front(archive_of(problem.bench, told[:after]))
        search_into(told, name, problem, seed)

    return search


def plain(problem: Problem, seed: int) -> None:
    """NSGA-II alone."""
    search_into([], "nsga2", problem, seed, is_plain=True)


def archive_of(bench: Bench, told: Sequence[TrialResult]) -> Archive:
    """What is believed after these results."""
    archive = Archive(bench.objectives)
    archive.tell(told)
    return archive


def front(archive: Archive) -> list[str]:
    """What nothing dominates by estimates."""
    estimates = [tuple(row) for row in archive.estimates()[0]]
    return [archive.known[i].key for i in non_dominated(estimates)]


def search_into(
    told: list[TrialResult], name: str, problem: Problem, seed: int, *, is_plain: bool = False
) -> None:
    """Search, adding each result to what was told."""
    bench = problem.bench
    space, policy, objectives = bench.space, bench.policy, bench.objectives
    named = () if is_plain else seeds(space, policy, bench.setting.is_causal)
    mechanisms = tuple((m.name, m.genome) for m in named)
    judge = CandidateFilter(policy, bench.setting, ["macs"])
    judge._inspected = bench.judge._inspected  # looks are the same for all
    operators = Variation(space, policy, bench.setting.is_causal)
    most = 1 if is_plain else problem.measure.most_trainings
    archive = Archive(objectives, most_trainings=most)
    materials = SearchContext(operators, mechanisms, POPULATION, objectives, seed, judge, archive)
    proposer = Proposer(ALGORITHMS.get(name)(materials), materials)
    for number in range(problem.budget):
        last = proposer.propose(number, told[: number - number % POPULATION])[-1]
        if not last.is_trained or last.key is None:
            break  # the space is exhausted
        accuracy, macs = problem.evaluate(last.key)
        told.append(TrialResult.of(last, [(-accuracy, macs)]))
