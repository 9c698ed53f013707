"""A run whose folder keeps answers: of a real race, and a real benchmark, with known trainings."""

from __future__ import annotations

from pathlib import Path

from nas.costs import costs_of, default_costs
from nas.explaining import Bounds, Race, plan_explanation
from nas.genome.canonical import digest
from nas.report.benchmark import make_benchmark
from nas.report.explanation import make_explanation
from nas.searching.setup import cost_context
from nas.space.rules import load_policy
from nas.store import append_answer
from nas.store.sources import resolve
from tests.explaining.test_racing import ACCURACY, DATA, MARGIN, TASK, Known
from tests.report.test_benchmark import BASE, BITS, trainings


def explain_best(run: Path) -> dict:
    """Keep an explanation of a run's best, whose trainings give the truth of `Known` and luck."""
    source, setting = resolve(f"{run}/best"), cost_context(TASK, {})
    bounds = Bounds(load_policy("score_normalize_aggregate"), TASK)
    race = Race(plan_explanation(source.genome, bounds, setting), ACCURACY, (5, 10), MARGIN)
    for _ in race.run(TASK, DATA, Known(), 0):
        pass
    costs = {
        key: costs_of(setting.resolve(genome), setting, default_costs())
        for key, genome in race.plan.mechanisms.items()
    }
    answer = make_explanation("latest/best", TASK.name, race, costs).to_dict()
    append_answer(run, "explain", [answer["id"]], answer)
    return answer


def benchmark_best(run: Path) -> dict:
    """Keep a benchmark of mha and a run's best under two tasks."""
    sources = {"mha": resolve("mha"), "best": resolve(f"{run}/best")}
    found = {
        "images": trainings({"mha": BASE, "best": BASE + 0.05 + 1e-3 * BASE}, ACCURACY),
        "bytes": trainings({"mha": 5 * BASE, "best": 5 * BASE + 0.1 + 1e-3 * BASE}, BITS),
    }
    digests = {name: digest(source.genome) for name, source in sources.items()}
    absent = {"images": {}, "bytes": {}}
    answer = make_benchmark(digests, found, absent, len(BASE)).to_dict()
    append_answer(run, "benchmark", ["best"], answer)
    return answer
