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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.stats import wilcoxon

from benchmarks.figures import Figure
from benchmarks.peers.ablations import ABLATIONS, WITHOUT
from benchmarks.peers.ours import ours, plain
from benchmarks.peers.problem import Measure, Problem, SpentError, bench
from benchmarks.peers.recorded import recorded
from nas.common.differences import mean_and_error
from nas.report.charts import COLOURS, DASHES, FONT, new_axes, write_figure

Search = Callable[[Problem, int], None]

BUDGETS: Final = (24, 36, 60, 120, 200, 600)
STARTS: Final = ("own", "random", "named")
# Ticks of the picture: missing shares of the hypervolume.
MISSED: Final = (0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2)
POINTS: Final = (12, 24, 36, 48, 60, 84, 120, 160, 200, 250, 300, 400, 500, 600)
REDISCOVERING: Final = ("surrogate", "nsga2", "random", "gp-ehvi")
MOST_REDISCOVERING: Final = 200  # trainings of a search
BY_POINT: Final = ("hypervolumes", "gaps")  # fields of a curve by number of trainings
BASELINE: Final = "nsga2"
CHOSEN: Final = "surrogate"
OURS: Final[Mapping[str, Search]] = {
    "nsga2": ours("nsga2"),
    "nsga2-plain": plain,
    "random": ours("random"),
    "regularized-evolution": ours("regularized-evolution"),
    "local-search": ours("local-search"),
    "surrogate": ours("surrogate"),
    "surrogate-50-lag-16": ours("surrogate", 50, 16),  # as `nas search` runs it by default
}
# Algorithm: the required package, our module for it, and its function.
PEERS: Final[Mapping[str, tuple[str, str, str]]] = {
    "optuna-nsga2": ("optuna", "optuna_peer", "nsga2"),
    "optuna-tpe": ("optuna", "optuna_peer", "tpe"),
    "pyglove-nsga2": ("pyglove", "pyglove_peer", "nsga2"),
    "gp-ehvi": ("sklearn", "gp_peer", "ehvi"),
    "gp-ehvi-pool": ("sklearn", "gp_peer", "ehvi_of_pools"),
    "pymoo-nsga2": ("pymoo", "pymoo_peer", "nsga2"),
    "syne-tune-evolution": ("syne_tune", "syne_tune_peer", "regularized_evolution"),
    "archai-evolution": ("archai", "archai_peer", "evolution_pareto"),
    "smac-parego": ("smac", "smac_peer", "parego"),
}
# Largest number of trainings of algorithms whose proposals would take days.
MOST_TRAININGS: Final[Mapping[str, int]] = {"smac-parego": 60}


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
        start: kind of first generation, an element of ``STARTS``.
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
    search: Search,
    measure: Measure,
    budget: int,
    seed: int,
    *,
    is_free: bool = False,
    start: str = "own",
) -> Problem:
    """Run one search until its budget is spent.

    Args:
        is_free: see ``Problem``.
        start: first generation. "own": the initial design of the algorithm; "random": the same
            random mechanisms for all algorithms; "named": the named mechanisms of the space,
            then the same random ones.
    """
    problem = Problem(measure, budget, is_free)
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
    name: str,
    seed: int,
    measure: Callable[[int], Measure],
    points: Sequence[int],
    is_free: bool,
    start: str,
) -> SearchCurve:
    """Run one search, and score its reports after each number of trainings in ``points``."""
    began = time.process_time()
    within = [point for point in points if point <= MOST_TRAININGS.get(name, point)]
    problem = run(search_of(name), measure(seed), max(within), seed, is_free=is_free, start=start)
    seconds = time.process_time() - began
    scores = {point: score_of(problem, point) for point in within}
    hypervolumes, gaps = ({point: score[i] for point, score in scores.items()} for i in (0, 1))
    return SearchCurve(name, seed, hypervolumes, gaps, seconds, start)


def compare(
    measure: Callable[[int], Measure],
    names: Sequence[str],
    seeds: Sequence[int],
    points: Sequence[int],
    *,
    is_free: bool = False,
    start: str = "own",
    record: Path | None = None,
) -> list[SearchCurve]:
    """Run all algorithms with all seeds on all cores; return the results of all searches.

    Args:
        measure: returns the trainings for a seed, the same for all algorithms.
        is_free: see ``Problem``.
        start: kind of first generation, see ``run``.
        record: file of finished searches, which are not repeated.
    """
    curves = [] if record is None or not record.exists() else _read(record)
    done = {(curve.algorithm, curve.seed) for curve in curves if curve.start == start}
    todo = [(name, seed) for seed in seeds for name in names if (name, seed) not in done]
    # Forked workers would inherit locks of the peers' libraries.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        running = [
            pool.submit(run_and_score, *search, measure, points, is_free, start) for search in todo
        ]
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


def summary(curves: Sequence[SearchCurve], budgets: Sequence[int] = BUDGETS) -> dict[str, Any]:
    """Return means and paired differences at each budget that the curves contain.

    The result holds a document for each budget and algorithm: mean hypervolume and its standard
    error, the mean gap of the best reported mechanism and its standard error, the surrogate's mean
    lead over the algorithm in the same searches (pairs of equal seed) and its standard error, and
    Wilcoxon's paired p against the surrogate and against NSGA-II.
    """
    results: dict[str, Any] = {}
    for budget in budgets:
        values = {name: _values(curves, name, budget) for name in _names(curves)}
        results[str(budget)] = {
            name: _summary_of(row, values) | _gaps_of(curves, name, budget)
            for name, row in values.items()
            if row
        }
    return {"budgets": {budget: rows for budget, rows in results.items() if rows}}


def _summary_of(
    row: Sequence[float], values: Mapping[str, Sequence[float]]
) -> dict[str, float | None]:
    mean, error = mean_and_error(row)
    document: dict[str, float | None] = {"hypervolume": mean, "error": error}
    if (chosen := values.get(CHOSEN)) and chosen is not row:
        lead, lead_error = mean_and_error(np.subtract(chosen, row).tolist())
        document |= {"lead_of_surrogate": lead, "error_of_lead": lead_error}
        document["p_against_surrogate"] = _p(row, chosen)
    if baseline := values.get(BASELINE):
        document["p_against_nsga2"] = _p(row, baseline)
    return document


def _gaps_of(curves: Sequence[SearchCurve], name: str, budget: int) -> dict[str, float | None]:
    gaps = [c.gaps[budget] for c in curves if c.algorithm == name and budget in c.gaps]
    mean, error = mean_and_error(gaps)
    return {"gap": mean, "error_of_gap": error}


def _chosen(options: argparse.Namespace) -> list[str]:
    """Return the names in ``--algorithms``; an unknown name ends the program."""
    names = options.algorithms.split(",") if options.algorithms else []
    known = (*OURS, *ABLATIONS, *PEERS)
    for name in names:
        if name not in known:
            sys.exit(f"--algorithms: there is no algorithm {name!r}; expected {', '.join(known)}.")
    return names


def peers(options: argparse.Namespace) -> list[Figure]:
    """Compare algorithms on a table; a search's seed draws the order of its trainings."""
    curves = compare(
        recorded(options.table),
        _chosen(options) or algorithms(),
        range(options.seeds),
        [point for point in POINTS if point <= options.budget],
        is_free=options.free,
        start=options.start,
        record=options.record,
    )
    results = summary(curves)
    if options.plot is not None:
        draw(curves, options.plot)
    if options.json:
        print(json.dumps(results))
    return [
        Figure(f"{name} after {budget}{label}", 100 * mean, "% of the best", low, high)
        for budget, rows in results["budgets"].items()
        for name, row in rows.items()
        for label, key, error_key in (
            ("", "hypervolume", "error"),
            (": lead of surrogate", "lead_of_surrogate", "error_of_lead"),
        )
        if (mean := row.get(key)) is not None
        for low, high in [_interval(mean, row[error_key])]
    ]


def ablation(options: argparse.Namespace) -> list[Figure]:
    """Compare the surrogate with versions that lack one of its parts, and with all of them."""
    names = options.algorithms or ",".join([CHOSEN, *WITHOUT])
    return peers(argparse.Namespace(**{**vars(options), "algorithms": names}))


def rediscovery(options: argparse.Namespace) -> list[Figure]:
    """Measure how soon searches report a mechanism about as good as the best of a table."""
    names = _chosen(options) or REDISCOVERING
    points = [point for point in POINTS if point <= min(options.budget, MOST_REDISCOVERING)]
    curves = compare(
        recorded(options.table),
        names,
        range(options.seeds),
        points,
        start=options.start,
        record=options.record,
    )
    metric = bench(options.table).encoding.metric
    tolerance = bench(options.table).encoding.tolerance
    unit = "of the metric" if metric.unit == "fraction" else f"{metric.unit}s"
    figures = []
    for name in names:
        chosen = [curve for curve in curves if curve.algorithm == name]
        soon = [min((p for p in points if c.gaps[p] <= tolerance), default=np.inf) for c in chosen]
        low, median, high = np.quantile(soon, (0.25, 0.5, 0.75), method="higher").tolist()
        label = f"{name}: within {tolerance:g} of the best"
        figures.append(Figure(label, median, "trainings", low, high))
        for point in (p for p in BUDGETS if p in points):
            mean, error = mean_and_error([curve.gaps[point] for curve in chosen])
            share = float(np.mean([curve.gaps[point] <= tolerance for curve in chosen]))
            label = f"{name}: gap after {point}, {share:.0%} within {tolerance:g}"
            figures.append(Figure(label, mean, unit, mean - (error or 0.0), mean + (error or 0.0)))
    return figures


def _interval(mean: float, error: float | None) -> tuple[float, float]:
    return 100 * (mean - (error or 0.0)), 100 * (mean + (error or 0.0))


def draw(curves: Sequence[SearchCurve], path: Path) -> None:
    """Draw the missing share of the hypervolume by number of trainings."""
    label = "missing share of the true hypervolume"
    seeds = len({curve.seed for curve in curves})
    with new_axes("Anytime curves", f"means over {seeds} searches", "trainings", label) as axes:
        axes.set(xscale="log", yscale="log")
        styles = zip(cycle(COLOURS), cycle(DASHES), strict=False)
        last: dict[str, float] = {}
        for name, (colour, dashes) in zip(_names(curves), styles, strict=False):
            rows = {point: _values(curves, name, point) for point in POINTS}
            points = [point for point, values in rows.items() if values]
            missing = [1 - float(np.mean(rows[point])) for point in points]
            style = {"linestyle": dashes, "linewidth": 1.3}
            if name == CHOSEN:
                style = {"linewidth": 3}
            axes.plot(points, missing, label=name, color=colour, **style)
            last[name] = missing[-1]
        end = max(max(curve.hypervolumes) for curve in curves)
        ticks = [point for point in (12, 24, 60, 120, 200, 300, 600) if point <= end]
        axes.set_xticks(ticks, [f"{x}" for x in ticks])
        missed = [y for y in MISSED if min(last.values()) <= y]
        axes.set_yticks(missed, [f"{y:g}" for y in missed])
        axes.minorticks_off()
        lines = sorted(axes.lines, key=lambda line: -last[line.get_label()])
        position = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(handles=lines, **position, frameon=False, fontsize=FONT, handlelength=3.5)
    write_figure(axes.figure, path)


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
