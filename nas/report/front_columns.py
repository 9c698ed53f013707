"""The columns of the tables of fronts and of the list of runs, declared once for all outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nas.common.objectives import Objective
from nas.costs import default_costs
from nas.report.table import Column
from nas.report.units import header, multiple, quantity

if TYPE_CHECKING:
    from nas.report.run_view import RunView
    from nas.store.records import Candidate, RunSummary

T = TypeVar("T")


def front_columns(view: RunView) -> list[Column[Candidate]]:
    """Return the columns of the table of a run's mechanisms, from left to right."""
    setup, metric = view.setup, view.metric
    members = {member.digest for member in view.members}
    objectives = {objective.name for objective in setup.objectives}
    costs = dict.fromkeys(name for candidate in view.candidates for name in candidate.costs)
    metrics = dict.fromkeys(name for candidate in view.candidates for name in candidate.scores)
    columns: list[Column[Candidate]] = [
        _text("id", "id", lambda c: c.digest, text=view.short, style="cyan"),
        Column("in_front", None, lambda c: int(c.digest in members)),
        _text("status", None, lambda c: c.status),
    ]
    for objective in setup.objectives:
        columns += (_metric if objective.is_metric else _cost)(view, objective)
    units = {measured.name: measured.unit for measured in setup.metrics}
    for name in (name for name in metrics if name not in objectives):
        unit = units.get(name, "")
        columns.append(Column(f"{name}_score", None, _item("scores", name), unit=unit))
    if metric is not None:
        columns += [column for title in view.means for column in _fresh(view, metric, title)]
    for name in (name for name in costs if name not in objectives):
        title = header(name) if name in default_costs() else None
        columns.append(Column(name, title, _item("costs", name), rank=3))
    title = "seeds" if is_estimated(view) else None
    p_front = "probability that no trained mechanism dominates it"
    if any(objective.limit is not None for objective in setup.objectives):
        within = "within the limits and that no trained mechanism within them dominates it"
        p_front = f"probability that it is {within}"
    return [
        *columns,
        Column("seeds", title, lambda c: len(c.scored), rank=4),
        Column(
            "p_non_dominated",
            "p(front)",
            lambda c: c.p,
            text=lambda c: f"{c.p:.2f}" if c.is_estimated else "",
            about=f"p(front): {p_front}.",
            rank=4,
        ),
        _text("name", "named", view.name_of, rank=2, least=12),
        _text("formula", "formula", lambda c: c.proposal.formula, rank=1, least=14),
        Column("proposed", None, lambda c: c.proposal.number),
        _text("operator", None, lambda c: c.proposal.operator),
        _text("parents", None, lambda c: " ".join(c.proposal.parents)),
    ]


def is_estimated(view: RunView) -> bool:
    """Return whether the search's model has estimated metrics of mechanisms of the front."""
    return any(member.is_estimated for member in view.members)


def _metric(view: RunView, objective: Objective) -> Iterator[Column[Candidate]]:
    """Yield the columns of a metric: estimates by the search's model, and measured means."""
    name, unit, error = objective.name, objective.unit, _item("errors", objective.name)
    title, has_estimates = header(name, unit), is_estimated(view)
    meaning = "" if unit else f" {title}: {objective.about}."
    yield Column(
        f"{name}_estimate",
        title if has_estimates else None,
        lambda c: None if c.p is None else c.objectives.get(name),
        unit=unit,
        error=error,
        about=f"±: standard error of an estimate from all trainings of the run.{meaning}",
    )
    yield Column(f"{name}_error", None, error, unit=unit)
    about = "score: mean of the member's own trainings, each with another seed."
    yield Column(
        f"{name}_score",
        "score" if has_estimates else title,
        _item("scores", name),
        unit=unit,
        error=None if has_estimates else error,
        about=about if has_estimates else "",
        rank=2 if has_estimates else 0,
    )


def _cost(view: RunView, objective: Objective) -> Iterator[Column[Candidate]]:
    name, unit = objective.name, objective.unit

    def share(candidate: Candidate) -> float | None:
        return view.shares(candidate).get(name)

    yield Column(name, header(name, unit), _item("costs", name), unit=unit)
    text = lambda c: "" if (ratio := share(c)) is None else multiple(ratio)  # noqa: E731
    yield Column(f"{name}_times_{view.reference}", f"× {view.reference}", share, text=text, rank=2)


def _fresh(view: RunView, metric: Objective, title: str) -> Iterator[Column[Candidate]]:
    """Yield the columns of a metric's means over fresh seeds; ``title`` is a part of ``fresh``."""
    part = title.replace(" ", "_")

    def value(field: str, candidate: Candidate) -> float | None:
        return getattr(view.means[title].get(candidate.key), field, None)

    error = partial(value, "error")
    yield Column(
        f"{part}_{metric.name}_mean",
        title,
        partial(value, "mean"),
        unit=metric.unit,
        error=error,
        about=f"{', '.join(view.means)}: means of trainings with fresh seeds, by `nas confirm`.",
        rank=1,
    )
    yield Column(f"{part}_{metric.name}_error", None, error, unit=metric.unit)
    yield Column(f"{part}_seeds", None, partial(value, "seeds"))


def _item(field: str, name: str) -> Callable[[Candidate], float | None]:
    return lambda candidate: getattr(candidate, field).get(name)


def _text(
    key: str, title: str | None, value: Callable[[T], str | None], **options: Any
) -> Column[T]:
    return Column(key, title, value, is_number=False, **options)


def _last(field: str, run: RunSummary) -> float | None:
    return getattr(run.generations[-1], field) if run.generations else None


def _best(run: RunSummary) -> str:
    best = _last("best", run)
    return "" if best is None else quantity(best, run.setup.objectives[0].unit)


RUN_COLUMNS: Final[list[Column[RunSummary]]] = [
    _text("run", "run", lambda run: run.name, style="cyan"),
    _text("status", "status", lambda run: run.status),
    _text("space", "space", lambda run: run.setup.space.name, rank=3),
    _text("task", "task", lambda run: run.setup.task.name, rank=4),
    _text("algorithm", "algorithm", lambda run: run.setup.config.algorithm, rank=4),
    Column("seed", None, lambda run: run.setup.config.seed),
    Column(
        "generations_done",
        "generations",
        lambda run: len(run.generations),
        text=lambda run: f"{len(run.generations)}/{run.setup.config.generations}",
    ),
    Column("generations", None, lambda run: run.setup.config.generations),
    Column("evaluated", "evaluated", lambda run: run.counts.evaluated, rank=1),
    Column("stopped", None, lambda run: run.counts.stopped),
    Column("failed", "failed", lambda run: run.counts.failed, rank=2),
    Column("objective", None, lambda run: run.setup.objectives[0].name),
    Column("best", "best", partial(_last, "best"), text=_best, rank=1),
    Column(
        "hypervolume",
        "hypervolume",
        partial(_last, "hypervolume"),
        text=lambda run: f"{run.generations[-1].hypervolume:.4f}" if run.generations else "",
        rank=1,
    ),
    Column("started", None, lambda run: run.sessions[0].started.isoformat()),
    Column(
        "active",
        "last active",
        lambda run: run.active.isoformat(),
        text=lambda run: f"{run.active.astimezone():%Y-%m-%d %H:%M}",
        is_number=False,
        rank=2,
    ),
    Column("folder", None, lambda run: str(run.folder)),
    _text("note", None, lambda run: run.sessions[-1].note),
]
