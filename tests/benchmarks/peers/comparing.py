"""All optimisers on the same landscapes or recorded trainings, and how sure the differences are."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from scipy.stats import wilcoxon

from tests.benchmarks.figures import Figure
from tests.benchmarks.peers.ours import ours, plain
from tests.benchmarks.peers.problem import Measure, Problem, SpentError, bench
from tests.benchmarks.peers.synthetic import Landscape

Search = Callable[[Problem, int], None]

BUDGETS: Final = (60, 120)
BASELINE: Final = "nsga2"
OURS: Final[Mapping[str, Search]] = {
    "nsga2": ours("nsga2"),
    "nsga2-plain": plain,
    "random": ours("random"),
    "regularized-evolution": ours("regularized-evolution"),
    "local-search": ours("local-search"),
    "surrogate": ours("surrogate"),
}
# Algorithm: the package that it needs, our module for it, and the function there.
PEERS: Final[Mapping[str, tuple[str, str, str]]] = {
    "optuna-nsga2": ("optuna", "optuna_peer", "nsga2"),
    "optuna-tpe": ("optuna", "optuna_peer", "tpe"),
    "optuna-gp": ("optuna", "optuna_peer", "gp"),
    "pyglove-nsga2": ("pyglove", "pyglove_peer", "nsga2"),
    "pymoo-nsga2": ("pymoo", "pymoo_peer", "nsga2"),
    "syne-tune-evolution": ("syne_tune", "syne_tune_peer", "regularized_evolution"),
    "archai-evolution": ("archai", "archai_peer", "evolution_pareto"),
    "smac-parego": ("smac", "smac_peer", "parego"),
}


def is_installed(peer: str) -> bool:
    """Whether a peer's package is there; the extra ``peers`` brings all of them."""
    return find_spec(PEERS[peer][0]) is not None


def searches() -> dict[str, Search]:
    """Ours, and those peers that are installed."""
    found = dict(OURS)
    for peer, (package, module, function) in PEERS.items():
        if is_installed(peer):
            found[peer] = getattr(import_module(f"tests.benchmarks.peers.{module}"), function)
        else:
            print(f"  {peer} is left out: {package} is not installed", file=sys.stderr)
    return found


def run(search: Search, measure: Measure, budget: int, seed: int, is_free: bool = False) -> Problem:
    """One search, until its budget is spent."""
    problem = Problem(measure, budget, is_free)
    with suppress(SpentError):
        search(problem, seed)
    return problem


def hypervolume(problem: Problem) -> float:
    """The true hypervolume of what a search reports."""
    return bench().hypervolume([problem.measure.truth(key) for key in problem.reported()])


def compare(
    measure: Callable[[int], Measure],
    budgets: Sequence[int],
    seeds: Sequence[int],
    algorithms: Mapping[str, Search],
    is_free: bool = False,
) -> dict[str, Any]:
    """Mean and standard error of the true hypervolume, and Wilcoxon's paired p against ours.

    Args:
        measure: for a seed; all algorithms of one seed meet the same.
        is_free: see ``Problem``.
    """
    assert BASELINE in algorithms
    results: dict[str, Any] = {}
    for budget in budgets:
        found: dict[str, list[float]] = {}
        for name, search in algorithms.items():
            start = time.process_time()
            found[name] = [hypervolume(run(search, measure(s), budget, s, is_free)) for s in seeds]
            spent = (time.process_time() - start) / len(seeds)
            print(f"  {budget:4} {name:22}{spent:8.1f} s a search", file=sys.stderr)
        results[str(budget)] = {
            name: {
                "hypervolume": float(np.mean(values)),
                "error": float(np.std(values, ddof=1) / len(values) ** 0.5),
                "p_against_nsga2": _p(values, found[BASELINE]),
            }
            for name, values in found.items()
        }
    return {"budgets": results}


def peers(options: argparse.Namespace) -> list[Figure]:
    """Everyone at every budget, on made-up landscapes."""
    results = compare(Landscape, BUDGETS, range(options.seeds), searches())
    if options.json:
        print(json.dumps(results))
    return [
        Figure(
            f"{name} after {budget}",
            one["hypervolume"],
            "hypervolume",
            one["hypervolume"] - one["error"],
            one["hypervolume"] + one["error"],
        )
        for budget, all_of_them in results["budgets"].items()
        for name, one in all_of_them.items()
    ]


def _p(values: Sequence[float], baseline: Sequence[float]) -> float:
    if np.allclose(values, baseline):
        return 1.0
    return float(wilcoxon(values, baseline).pvalue)
