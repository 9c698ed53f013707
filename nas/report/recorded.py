"""What a run records about one mechanism: results, costs and trainings, as texts and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from nas.common.text import last_line, plural
from nas.evaluation.trial import Training
from nas.report.run_view import RunView, outside_text
from nas.report.table import Column, Table, words
from nas.report.units import amount, duration, header, human, minus, points
from nas.store import Candidate

PartTraining: TypeAlias = tuple[str, Training]


def facts(view: RunView, mechanism: Candidate) -> Iterator[tuple[str, str, str]]:
    """Yield name, text and kind of each result of a mechanism, without its costs.

    The kind is the shape of the result's mark on the page, or "more" for what its tooltip omits.
    """
    seeds = plural(len(mechanism.scored), "seed")
    for metric in (o for o in view.setup.objectives if o.is_metric):
        title, name = header(metric.name, metric.unit), metric.name
        if mechanism.is_estimated and name in mechanism.objectives:
            value, error = mechanism.objectives[name], mechanism.errors.get(name)
            yield f"{title}, estimate", amount(value, metric.unit, error), "disc"
        if name in mechanism.scores:
            score = amount(mechanism.scores[name], metric.unit)
            yield f"{title}, score of {seeds}", score, "ring"
        for (part, key), cell in view.confirmation(metric).cells.items():
            if key != mechanism.key or cell.mean is None:
                continue
            mean = amount(cell.mean, metric.unit, cell.error)
            yield f"{title}, {part} ({plural(cell.seeds, 'seed')})", mean, "square"
            if lead := cell.difference:
                gain = minus(points(lead.mean, lead.error, metric.unit))
                over = f"over {view.reference}, {part}: {lead.verdict}"
                yield over, gain, f"square {lead.verdict}"
    if mechanism.is_estimated and mechanism.p is not None:
        yield "p(front)", f"{mechanism.p:.2f}", ""
    if not mechanism.is_ok:
        yield "training", mechanism.status, ""
    elif outside := outside_text(view.setup.objectives, mechanism.objectives):
        yield "limits", outside, ""
    operator = mechanism.proposal.operator.replace("_", " ")
    yield "proposed", f"generation {view.generation(mechanism)} by {operator}", "more"
    yield "digest", mechanism.digest, "more"


def costs(view: RunView, mechanism: Candidate) -> Iterator[tuple[str, str, float | None]]:
    """Yield title, text and multiple of the reference's cost for each cost."""
    shares = view.shares(mechanism)
    for name in dict.fromkeys([*(o.name for o in view.setup.objectives), *mechanism.costs]):
        if name in mechanism.costs:
            yield header(name), amount(mechanism.costs[name]), shares.get(name)


def trainings_table(view: RunView, trainings: Sequence[PartTraining]) -> Table[PartTraining]:
    """Return a table of trainings of a mechanism, each with the part that it belongs to."""
    metric = view.metric

    def score(training: Training) -> str:
        value = training.evaluation.metrics.get(metric.name) if metric else None
        return "" if metric is None or value is None else amount(value, metric.unit)

    def error(training: Training) -> str:
        reason = (training.evaluation.reason or "").replace("_", " ")
        return ": ".join(filter(None, (reason, last_line(training.evaluation.error))))

    def of(title: str, value: Any, rank: int = 0, least: int = 0) -> Column[PartTraining]:
        text = lambda row: value(row[1])  # noqa: E731
        return Column(title, title, text, is_number=False, rank=rank, least=least)

    columns = [
        of("task", lambda t: t.task_name),
        words(0, "part"),
        of(header(metric.name, metric.unit) if metric else "", score),
        of("rate", lambda t: "" if t.learning_rate is None else f"{t.learning_rate:g}", rank=1),
        of("seed", lambda t: str(t.evaluation.seed)),
        of("status", lambda t: t.evaluation.status),
        of("core time", lambda t: duration(t.evaluation.core_seconds)),
        of("memory", lambda t: f"{human(t.evaluation.peak_memory_bytes)}B", rank=1),
        of("hardware", lambda t: t.evaluation.hardware, rank=2),
        of("error", error, least=16),
    ]
    return Table(columns, trainings)


def trainings_of(view: RunView, mechanism: Candidate) -> list[PartTraining]:
    """Return all trainings of a mechanism with their parts, those of the search first."""
    fresh = [(part, t) for part, t in view.confirmations_by_part if t.key == mechanism.key]
    return [*(("search", training) for training in mechanism.searched), *fresh]


def recorded_answer(view: RunView, mechanism: Candidate) -> dict[str, Any]:
    """Return what a run recorded about a mechanism, as entries of the JSON of ``nas show``."""
    proposal, trained = mechanism.proposal, view.trained_as(mechanism)
    is_ok = trained.is_ok
    return {
        "run": view.name,
        "generation": view.generation(mechanism) - 1,  # from 0, as in the record
        "operator": proposal.operator,
        "name": proposal.name,
        "parents": list(proposal.parents),
        "objectives": dict(trained.objectives) or None,
        "standard_errors": dict(trained.errors) if is_ok else None,
        "scores": dict(trained.scores) if is_ok else None,
        "p_non_dominated": trained.p if is_ok else None,
        "incidents": [asdict(i) for i in view.incidents if i.key == trained.key],
        "trainings": [training.to_dict() for training in trained.searched],
    }
