"""Run all optimisers on the same recorded trainings, with paired tests of their differences.

Each search runs once, with the largest budget. Its reports after fewer trainings give the results
of smaller budgets. All algorithms see the same trainings for a seed, so differences are paired.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
from scipy.stats import wilcoxon

from benchmarks.peers.ablations import ABLATIONS
from benchmarks.peers.ours import ours
from benchmarks.peers.problem import Problem, SpentError, bench
from benchmarks.peers.recorded import Recorded, recorded
from benchmarks.rows import Mean, Row, Spread

Search = Callable[[Problem, int], None]

POINTS: Final = (12, 24, 36, 48, 60, 84, 120, 160, 200, 250, 300, 400, 500, 600)
BUDGETS: Final = (24, 36, 60, 120, 200, 600)  # points that are printed
BY_POINT: Final = ("hypervolumes", "gaps")  # fields of a curve by number of trainings
CHOSEN: Final = "surrogate"
OURS: Final[Mapping[str, Search]] = {
    "nsga2": ours("nsga2"),
    "random": ours("random"),
    "regularized-evolution": ours("regularized-evolution"),
    "surrogate": ours("surrogate"),
    "surrogate-50-lag-16": ours("surrogate", 50, 16),  # as `nas search` runs it by default
}
# Algorithm: the required package, our module for it, and its function.
PEERS: Final[Mapping[str, tuple[str, str, str]]] = {
    "optuna-nsga2": ("optuna", "optuna_peer", "nsga2"),
    "optuna-tpe": ("optuna", "optuna_peer", "tpe"),
    "gp-ehvi": ("sklearn", "gp_peer", "ehvi"),
    "gp-ehvi-pool": ("sklearn", "gp_peer", "ehvi_of_pools"),
    "pymoo-nsga2": ("pymoo", "pymoo_peer", "nsga2"),
}


@dataclass(frozen=True)
class SearchCurve:
    """The results of one search.

    Attributes:
        hypervolumes: true hypervolume of the report as a share of the whole space's, by number of
            trainings.
        gaps: true quality of the best reported mechanism below that of the best mechanism of the
            space, in the unit of the metric, by number of trainings; infinite if nothing
            within the region is reported.
        seconds: processor time of the search, in seconds.
        start: kind of first generation, see ``run``.
    """

    algorithm: str
    seed: int
    hypervolumes: Mapping[int, float]
    gaps: Mapping[int, float]
    seconds: float
    start: str = "own"


def is_installed(peer: str) -> bool:
    """Return whether a peer's package is installed; the extra ``peers`` installs all."""
    return find_spec(PEERS[peer][0]) is not None


def search_of(name: str) -> Search:
    """Return the function that runs an algorithm."""
    if name in OURS:
        return OURS[name]
    if name in ABLATIONS:
        return ABLATIONS[name]
    _, module, function = PEERS[name]
    search: Search = getattr(import_module(f"benchmarks.peers.{module}"), function)
    return search


def algorithms() -> list[str]:
    """Return the names of our algorithms and of the installed peers."""
    missing = [peer for peer in PEERS if not is_installed(peer)]
    if missing:
        print(f"  skipped, because not installed: {', '.join(missing)}", file=sys.stderr)
    return [*OURS, *(peer for peer in PEERS if peer not in missing)]


def run(
    search: Search, measure: Recorded, budget: int, seed: int, *, start: str = "own"
) -> Problem:
    """Run one search until its budget is spent.

    Args:
        start: first generation. "own": the initial design of the algorithm; "random": the same
            random mechanisms for all algorithms; "named": the named mechanisms of the space,
            then the same random ones.
    """
    problem = Problem(measure, budget)
    if start != "own":
        problem.initial = problem.bench.initial(seed, with_named=start == "named")
    with suppress(SpentError):
        search(problem, seed)
    return problem


def hypervolume(problem: Problem, after: int | None = None) -> float:
    """Return the true hypervolume of a search's report, as a share of the whole space's."""
    return score_of(problem, after)[0]


def score_of(problem: Problem, after: int | None = None) -> tuple[float, float]:
    """Return hypervolume and gap of a search's report, see ``SearchCurve``."""
    measure, bench = problem.measure, problem.bench
    truths = [measure.truth(key) for key in bench.mechanisms]
    reported = [measure.truth(key) for key in problem.reported(after)]
    _, most = bench.corner
    best = min(quality for quality, cost in truths if cost <= most)
    within = [quality for quality, cost in reported if cost <= most]
    gap = within[0] - best if within else math.inf
    return bench.hypervolume(reported) / bench.hypervolume(truths), gap


def run_and_score(
    name: str, seed: int, measure: Callable[[int], Recorded], points: Sequence[int], start: str
) -> SearchCurve:
    """Run one search, and score its reports after each number of trainings in ``points``."""
    began = time.process_time()
    problem = run(search_of(name), measure(seed), max(points), seed, start=start)
    seconds = time.process_time() - began
    scores = {point: score_of(problem, point) for point in points}
    hypervolumes, gaps = ({point: score[i] for point, score in scores.items()} for i in (0, 1))
    return SearchCurve(name, seed, hypervolumes, gaps, seconds, start)


def compare(
    measure: Callable[[int], Recorded],
    names: Sequence[str],
    seeds: Sequence[int],
    points: Sequence[int],
    *,
    start: str = "own",
    record: Path | None = None,
) -> list[SearchCurve]:
    """Run all algorithms with all seeds on all cores; return the results of all searches.

    Args:
        measure: returns the trainings for a seed, the same for all algorithms.
        start: kind of first generation, see ``run``.
        record: file of finished searches, which are not repeated.
    """
    curves = [] if record is None or not record.exists() else _read(record)
    done = {(curve.algorithm, curve.seed) for curve in curves if curve.start == start}
    todo = [(name, seed) for seed in seeds for name in names if (name, seed) not in done]
    # Forked workers would inherit locks of the peers' libraries.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run_and_score, *search, measure, points, start) for search in todo]
        for number, future in enumerate(as_completed(running), 1):
            curve = future.result()
            curves.append(curve)
            label = f"{curve.algorithm}, seed {curve.seed}: {curve.seconds:.0f} s"
            print(f"  [{number}/{len(todo)}] {label}", file=sys.stderr)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps(asdict(curve)) + "\n")
    return [
        curve
        for curve in curves
        if curve.algorithm in names and curve.seed in seeds and curve.start == start
    ]


def summary(
    curves: Sequence[SearchCurve], tolerance: float, points: Sequence[int] = BUDGETS
) -> Iterator[Row]:
    """Yield means and paired differences after each number of trainings that the curves contain.

    A lead is the surrogate's over the algorithm in the same searches (pairs of equal seed), p is by
    Wilcoxon's paired test. The gap is the best reported mechanism's to the best of the space.
    """
    for point in points:
        values = {name: _values(curves, name, point) for name in _names(curves)}
        for name, row in values.items():
            if not row:
                continue
            gaps = [c.gaps[point] for c in curves if c.algorithm == name and point in c.gaps]
            chosen = values.get(CHOSEN, []) if name != CHOSEN else []
            yield {
                "algorithm": name,
                "trainings": point,
                "hypervolume": Mean.of(row),
                "lead of surrogate": Mean.of(np.subtract(chosen, row).tolist()) if chosen else "",
                "p": _p(row, chosen) if chosen else "",
                "gap": Mean.of(gaps),
                f"within {tolerance:g}, %": float(100 * np.mean(np.array(gaps) <= tolerance)),
            }


def rediscovery(curves: Sequence[SearchCurve], tolerance: float) -> Iterator[Row]:
    """Yield how many trainings a search needs until it reports about the best mechanism."""
    for name in _names(curves):
        soon = [
            min((point for point, gap in curve.gaps.items() if gap <= tolerance), default=np.inf)
            for curve in curves
            if curve.algorithm == name
        ]
        low, median, high = np.quantile(soon, (0.25, 0.5, 0.75), method="higher").tolist()
        yield {
            "algorithm": name,
            f"trainings until within {tolerance:g} of the best": Spread(median, low, high),
        }


def peers(options: argparse.Namespace) -> Iterator[Row]:
    """Compare algorithms on a table; a search's seed draws the order of its trainings."""
    names = options.algorithms.split(",") if options.algorithms else algorithms()
    points = [point for point in POINTS if point <= options.budget]
    curves = compare(
        recorded(options.table),
        names,
        range(options.seeds),
        points,
        start=options.start,
        record=options.record,
    )
    tolerance = bench(options.table).encoding.tolerance
    yield from summary(curves, tolerance)
    yield from rediscovery(curves, tolerance)


def ablation(options: argparse.Namespace) -> Iterator[Row]:
    """Compare the surrogate with versions that lack one of its parts, and with all of them."""
    names = options.algorithms or ",".join([CHOSEN, *ABLATIONS])
    return peers(argparse.Namespace(**{**vars(options), "algorithms": names}))


def _read(record: Path) -> list[SearchCurve]:
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    return [
        SearchCurve(**{**row, **{n: {int(p): v for p, v in row[n].items()} for n in BY_POINT}})
        for row in rows
    ]


def _names(curves: Sequence[SearchCurve]) -> list[str]:
    return list(dict.fromkeys(curve.algorithm for curve in curves))


def _values(curves: Sequence[SearchCurve], name: str, point: int) -> list[float]:
    """Return an algorithm's hypervolumes after ``point`` trainings, in order of seeds."""
    rows = sorted((c for c in curves if c.algorithm == name), key=lambda curve: curve.seed)
    return [curve.hypervolumes[point] for curve in rows if point in curve.hypervolumes]


def _p(values: Sequence[float], baseline: Sequence[float]) -> float:
    if np.allclose(values, baseline):
        return 1.0
    return float(wilcoxon(values, baseline).pvalue)
