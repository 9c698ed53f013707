"""All optimisers on the same recorded trainings, and how sure the differences are.

Each search is run once, to its last training; what it would have reported earlier is judged as
well, which gives all budgets and the curves. A search of a seed meets the same trainings whatever
its algorithm, so differences are paired.
"""

from __future__ import annotations

import argparse
import json
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
from benchmarks.peers.ours import ours, plain
from benchmarks.peers.problem import Measure, Problem, SpentError
from benchmarks.peers.recorded import recorded
from nas.report.charts import COLOURS, DASHES, FONT, new_axes, write_figure

Search = Callable[[Problem, int], None]

BUDGETS: Final = (60, 200, 600)
# Shares of the hypervolume that are marked in the picture.
MISSED: Final = (0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2)
POINTS: Final = (12, 24, 36, 48, 60, 84, 120, 160, 200, 250, 300, 400, 500, 600)
BASELINE: Final = "nsga2"
CHOSEN: Final = "surrogate"
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
# Those whose own work a training takes so long that more trainings would take days.
MOST_TRAININGS: Final[Mapping[str, int]] = {"optuna-gp": 60, "smac-parego": 60}


@dataclass(frozen=True)
class Searched:
    """What one search came to: the hypervolume of what it reports after so many trainings."""

    algorithm: str
    seed: int
    hypervolumes: Mapping[int, float]
    seconds: float


def is_installed(peer: str) -> bool:
    """Whether a peer's package is there; the extra ``peers`` brings all of them."""
    return find_spec(PEERS[peer][0]) is not None


def search_of(name: str) -> Search:
    """An algorithm by name."""
    if name in OURS:
        return OURS[name]
    _, module, function = PEERS[name]
    found: Search = getattr(import_module(f"benchmarks.peers.{module}"), function)
    return found


def algorithms() -> list[str]:
    """Ours, and those peers that are installed."""
    missing = [peer for peer in PEERS if not is_installed(peer)]
    if missing:
        print(f"  not installed, and left out: {', '.join(missing)}", file=sys.stderr)
    return [*OURS, *(peer for peer in PEERS if peer not in missing)]


def run(search: Search, measure: Measure, budget: int, seed: int, is_free: bool = False) -> Problem:
    """One search, until its budget is spent."""
    problem = Problem(measure, budget, is_free)
    with suppress(SpentError):
        search(problem, seed)
    return problem


def hypervolume(problem: Problem, after: int | None = None) -> float:
    """The true hypervolume of what a search reports, as a share of the whole space's."""
    measure, bench = problem.measure, problem.bench
    found = bench.hypervolume([measure.truth(key) for key in problem.reported(after)])
    return found / bench.hypervolume([measure.truth(key) for key in bench.mechanisms])


def judge(
    name: str, seed: int, measure: Callable[[int], Measure], points: Sequence[int], is_free: bool
) -> Searched:
    """Run one search, and judge it after so many trainings each."""
    start = time.process_time()
    within = [point for point in points if point <= MOST_TRAININGS.get(name, point)]
    problem = run(search_of(name), measure(seed), max(within), seed, is_free)
    spent = time.process_time() - start
    return Searched(name, seed, {point: hypervolume(problem, point) for point in within}, spent)


def compare(
    measure: Callable[[int], Measure],
    names: Sequence[str],
    seeds: Sequence[int],
    points: Sequence[int],
    *,
    is_free: bool = False,
    record: Path | None = None,
) -> list[Searched]:
    """All algorithms with all seeds, as many at once as there are cores.

    Args:
        measure: for a seed; all algorithms of one seed meet the same.
        is_free: see ``Problem``.
        record: a file of finished searches, which are not run again.
    """
    found = [] if record is None or not record.exists() else _read(record)
    done = {(one.algorithm, one.seed) for one in found}
    todo = [(name, seed) for seed in seeds for name in names if (name, seed) not in done]
    # Forked workers would inherit locks of other people's libraries.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        running = [pool.submit(judge, *one, measure, points, is_free) for one in todo]
        for number, ended in enumerate(as_completed(running), 1):
            one = ended.result()
            found.append(one)
            told = f"[{number}/{len(todo)}] {one.algorithm}, seed {one.seed}: {one.seconds:.0f} s"
            print(f"  {told}", file=sys.stderr)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
    return [one for one in found if one.algorithm in names and one.seed in seeds]


def summary(found: Sequence[Searched], budgets: Sequence[int] = BUDGETS) -> dict[str, Any]:
    """Mean and standard error at each budget, and Wilcoxon's paired p against NSGA-II."""
    results: dict[str, Any] = {}
    for budget in budgets:
        base = _values(found, BASELINE, budget)
        if not base:
            continue
        results[str(budget)] = {
            name: {
                "hypervolume": float(np.mean(values)),
                "error": float(np.std(values, ddof=1) / len(values) ** 0.5),
                "p_against_nsga2": _p(values, base),
            }
            for name in dict.fromkeys(one.algorithm for one in found)
            if (values := _values(found, name, budget))
        }
    return {"budgets": results}


def peers(options: argparse.Namespace) -> list[Figure]:
    """Everyone on a table; the trainings of a search are given in an order that its seed draws."""
    found = compare(
        recorded(options.table),
        options.algorithms.split(",") if options.algorithms else algorithms(),
        range(options.seeds),
        [point for point in POINTS if point <= options.budget],
        is_free=options.free,
        record=options.record,
    )
    results = summary(found)
    if options.plot is not None:
        draw(found, options.plot)
    if options.json:
        print(json.dumps(results))
    return [
        Figure(
            f"{name} after {budget}",
            one["hypervolume"],
            "of the best",
            one["hypervolume"] - one["error"],
            one["hypervolume"] + one["error"],
        )
        for budget, all_of_them in results["budgets"].items()
        for name, one in all_of_them.items()
    ]


def draw(found: Sequence[Searched], path: Path) -> None:
    """The curves as a picture: how far from the best possible, after so many trainings."""
    up = "share of the true hypervolume that is missed"
    seeds = len({one.seed for one in found})
    with new_axes("Anytime curves", f"means over {seeds} searches", "trainings", up) as axes:
        axes.set(xscale="log", yscale="log")
        looks = zip(cycle(COLOURS), cycle(DASHES), strict=False)
        last: dict[str, float] = {}
        for name, (colour, dashes) in zip(
            dict.fromkeys(one.algorithm for one in found), looks, strict=False
        ):
            rows = {point: _values(found, name, point) for point in POINTS}
            points = [point for point, values in rows.items() if values]
            missing = [1 - float(np.mean(rows[point])) for point in points]
            look = {"linestyle": dashes, "linewidth": 1.3}
            if name == CHOSEN:
                look = {"linewidth": 3}
            axes.plot(points, missing, label=name, color=colour, **look)
            last[name] = missing[-1]
        end = max(max(one.hypervolumes) for one in found)
        across = [point for point in (12, 24, 60, 120, 200, 300, 600) if point <= end]
        axes.set_xticks(across, [f"{x}" for x in across])
        missed = [y for y in MISSED if min(last.values()) <= y]
        axes.set_yticks(missed, [f"{y:g}" for y in missed])
        axes.minorticks_off()
        lines = sorted(axes.lines, key=lambda line: -last[line.get_label()])
        beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        axes.legend(handles=lines, **beside, frameon=False, fontsize=FONT, handlelength=3.5)
    write_figure(axes.figure, path)


def _read(record: Path) -> list[Searched]:
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    return [
        Searched(**{**row, "hypervolumes": {int(p): v for p, v in row["hypervolumes"].items()}})
        for row in rows
    ]


def _values(found: Sequence[Searched], name: str, point: int) -> list[float]:
    """The hypervolumes of an algorithm after so many trainings, by seed."""
    own = sorted((one for one in found if one.algorithm == name), key=lambda one: one.seed)
    return [one.hypervolumes[point] for one in own if point in one.hypervolumes]


def _p(values: Sequence[float], baseline: Sequence[float]) -> float:
    if np.allclose(values, baseline):
        return 1.0
    return float(wilcoxon(values, baseline).pvalue)
