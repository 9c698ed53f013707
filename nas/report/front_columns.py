"""The columns of a front: the only list of what is shown of a mechanism of a run.

Terminal, page, notebook, CSV, JSON and data frame render it (``nas.report.columns``): a new column
is a line here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nas.common.objectives import REGRET
from nas.costs import default_costs
from nas.report.columns import Column
from nas.report.units import header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nas.common.objectives import Objective
    from nas.report.run_view import RunView
    from nas.store import Candidate

MAX_NAMES: Final = 2
SURE: Final = 0.8  # probability from which on a published mechanism counts as dominated
MIN_FORMULA: Final = 20


def front_columns(view: RunView) -> list[Column[Candidate]]:
    """Everything that is shown of a mechanism, in order."""
    setup, members = view.setup, {member.digest for member in view.members}
    objectives = {objective.name for objective in setup.objectives}
    costs = dict.fromkeys(name for one in view.candidates for name in one.costs)
    metrics = dict.fromkeys(name for one in view.candidates for name in one.scores)
    columns: list[Column[Candidate]] = [
        _text("id", "id", lambda one: one.digest, text=view.short, in_json=False, style="cyan"),
        Column("in_front", "", lambda one: int(one.digest in members), in_json=False),
    ]
    for objective in setup.objectives:
        columns += (_metric if objective.is_metric else _cost)(view, objective)
    columns += [_score(name, setup.unit(name)) for name in metrics if name not in objectives]
    if view.metric is not None:
        columns += [c for title in view.fresh for c in _fresh(view, view.metric, title)]
    columns.append(_text("limited_by", "limited by", _limit, rank=1))
    columns += [_extra(name) for name in costs if name not in objectives]
    columns.append(
        Column(
            "seeds",
            "seeds" if is_estimated(view) else "",
            lambda one: len(one.trainings),
            in_json=False,
            rank=4,
        )
    )
    columns.append(
        Column(
            "p_non_dominated",
            "p(front)",
            lambda one: one.p,
            better="max",
            text=lambda one: f"{one.p:.2f}" if one.is_estimated else "",
            about="p(front): probability that no trained mechanism dominates the member.",
            in_json=False,
            rank=4,
        )
    )
    return [
        *columns,
        _text(
            "name",
            "named",
            lambda one: " = ".join(view.names_of(one)),
            text=partial(mark, view),
            rank=1,
            style="green",
        ),
        _text(
            "formula",
            "formula",
            lambda one: one.proposal.formula,
            in_json=False,
            rank=1,
            least=MIN_FORMULA,
        ),
        Column("proposed", "", lambda one: one.proposal.number),
        _text("operator", "", lambda one: one.proposal.operator),
        _text("parents", "", lambda one: " ".join(one.proposal.parents), in_json=False),
    ]


def is_estimated(view: RunView) -> bool:
    """Whether the members have estimates."""
    return any(member.is_estimated for member in view.members)


def _metric(view: RunView, objective: Objective) -> Iterator[Column[Candidate]]:
    """Estimate and score; before the first estimate the score stands in its place."""
    name, unit = objective.name, objective.unit
    title, has_estimates = header(name, unit), is_estimated(view)
    yield Column(
        _key(name, "estimate", unit),
        title if has_estimates else "",
        lambda one: None if one.p is None else one.objectives.get(name),
        unit=unit,
        error=lambda one: one.errors.get(name),
        error_key=_key(name, "error", unit),
        better=objective.direction,
        about="±: standard error of an estimate from all trainings of the run.",
        in_json=False,
    )
    yield Column(
        _key(name, "score", unit),
        "score" if has_estimates else title,
        lambda one: one.scores.get(name),
        unit=unit,
        error=None if has_estimates else lambda one: one.errors.get(name),
        better=objective.direction,
        about="score: mean of the member's own trainings, each with another seed."
        if has_estimates
        else "",
        in_json=False,
        rank=2 if has_estimates else 0,
    )


def _cost(view: RunView, objective: Objective) -> Iterator[Column[Candidate]]:
    name = objective.name
    yield Column(
        name,
        header(name, objective.unit),
        lambda one: one.costs.get(name),
        unit=objective.unit,
        better=objective.direction,
        in_json=False,
    )
    yield Column(
        f"{name}_times_mha",
        "× mha",
        lambda one: view.shares(one).get(name),
        better=objective.direction,
        text=lambda one: "" if (share := view.shares(one).get(name)) is None else f"{share:.2f}",
        rank=2,
    )


def _score(name: str, unit: str) -> Column[Candidate]:
    """A metric that is no objective."""
    return Column(f"{name}_score", "", lambda one: one.scores.get(name), unit=unit, in_json=False)


def _extra(name: str) -> Column[Candidate]:
    """A cost that is no objective."""
    title = header(name) if name in default_costs() else ""
    return Column(name, title, lambda one: one.costs.get(name), better="min", rank=3)


def _fresh(view: RunView, metric: Objective, title: str) -> Iterator[Column[Candidate]]:
    """The metric in trainings with fresh seeds, and the number of these."""
    name = f"{title} {metric.name}".replace(" ", "_")

    def part(field: str, one: Candidate) -> float | None:
        spread = view.spread(title, one.key)
        return getattr(spread, field) if spread else None

    yield Column(
        _key(name, "mean", metric.unit),
        title,
        partial(part, "mean"),
        unit=metric.unit,
        error=partial(part, "error"),
        error_key=_key(name, "error", metric.unit),
        better=metric.direction,
        about=f"{', '.join(view.fresh)}: means of trainings with fresh seeds, by `nas confirm`.",
        in_json=False,
        rank=1,
    )
    yield Column(f"{title.replace(' ', '_')}_seeds", "", partial(part, "seeds"), in_json=False)


def _key(name: str, what: str, unit: str) -> str:
    """The name of a column; the unit is added unless the metric's name contains it."""
    return "_".join([name, what, *([unit] if unit and unit.lower() not in name.lower() else [])])


def _text(
    key: str, title: str, value: Callable[[Candidate], str | None], **options: Any
) -> Column[Candidate]:
    return Column(key, title, value, is_number=False, **options)


def _limit(one: Candidate) -> str | None:
    """Of several tasks, the one with the largest regret."""
    regrets = {name: value for name, value in one.scores.items() if name.endswith(REGRET)}
    return max(regrets, key=regrets.__getitem__).removesuffix(REGRET) if len(regrets) > 1 else None


def mark(view: RunView, one: Candidate) -> str:
    """Its names; else the published mechanisms that it most likely dominates."""
    if names := view.names_of(one):
        return " = ".join(names)
    beaten = [name for name, p in view.dominated_by(one).items() if p >= SURE]
    more = f" +{len(beaten) - MAX_NAMES}" if len(beaten) > MAX_NAMES else ""
    return f"> {', '.join(beaten[:MAX_NAMES])}{more}" if beaten else ""
