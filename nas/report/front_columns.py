"""The columns of the table of a front, declared once for all outputs.

Terminal, page, notebook, CSV, JSON and data frame render these columns (``nas.report.columns``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import LEVEL
from nas.common.objectives import Objective
from nas.costs import default_costs
from nas.report.columns import Column
from nas.report.run_view import UNIFORM, p_front
from nas.report.units import header

if TYPE_CHECKING:
    from nas.report.run_view import RunView
    from nas.store import Candidate

MAX_NAMES: Final = 2
SURE: Final = 1 - LEVEL  # least probability at which a published mechanism counts as dominated
MIN_FORMULA: Final = 14
MIN_NAME: Final = 12
NAMED: Final = "named"


def front_columns(view: RunView) -> list[Column[Candidate]]:
    """Return the columns of the table of a run's mechanisms, from left to right."""
    setup, members = view.setup, {member.digest for member in view.members}
    objectives = {objective.name for objective in setup.objectives}
    costs = dict.fromkeys(name for candidate in view.candidates for name in candidate.costs)
    metrics = dict.fromkeys(name for candidate in view.candidates for name in candidate.scores)
    columns: list[Column[Candidate]] = [
        _text("id", "id", lambda c: c.digest, text=view.short, in_json=False, style="cyan"),
        Column("in_front", "", lambda c: int(c.digest in members), in_json=False),
    ]
    for objective in setup.objectives:
        columns += (_metric if objective.is_metric else _cost)(view, objective)
    if setup.target is not None and view.metric is not None:
        columns.append(_short(view.metric, setup.task.name))
    columns += [_score(name, setup.unit(name)) for name in metrics if name not in objectives]
    if view.metric is not None:
        columns += [c for title in view.fresh for c in _fresh(view, view.metric, title)]
    columns += [_extra(name) for name in costs if name not in objectives]
    formula = {"in_json": False, "rank": 1, "least": MIN_FORMULA}
    return [
        *columns,
        Column(
            "seeds",
            "seeds" if is_estimated(view) else "",
            lambda c: len(c.scored),
            in_json=False,
            rank=4,
        ),
        Column(
            "p_non_dominated",
            "p(front)",
            lambda c: c.p,
            text=lambda c: f"{c.p:.2f}" if c.is_estimated else "",
            about=f"p(front): {p_front(setup.objectives)}.",
            in_json=False,
            rank=4,
        ),
        _text("name", NAMED, view.name_of, text=partial(mark, view), rank=2, least=MIN_NAME),
        _text("formula", "formula", lambda c: c.proposal.formula, **formula),
        Column("proposed", "", lambda c: c.proposal.number),
        _text("operator", "", lambda c: c.proposal.operator),
        _text("parents", "", lambda c: " ".join(c.proposal.parents), in_json=False),
    ]


def is_estimated(view: RunView) -> bool:
    """Return whether the search's model has estimated metrics of mechanisms of the front."""
    return any(member.is_estimated for member in view.members)


def mark(view: RunView, candidate: Candidate) -> str:
    """Return the text of a mechanism in the column "named" of the table of a front.

    For a published mechanism the text is its names. For any other mechanism the text is "> " and
    the names of the published mechanisms that it dominates with probability ``SURE`` or more;
    without such a mechanism the text is empty. The control ``uniform`` is not named.
    """
    if name := view.name_of(candidate):
        return name
    dominated = view.dominated_by(candidate).items()
    beaten = [name for name, p in dominated if p >= SURE and name != UNIFORM]
    more = f" +{len(beaten) - MAX_NAMES}" if len(beaten) > MAX_NAMES else ""
    return f"> {', '.join(beaten[:MAX_NAMES])}{more}" if beaten else ""


def _metric(view: RunView, objective: Objective) -> Iterator[Column[Candidate]]:
    """Yield the columns of a metric: its estimates by the search's model, and its measured means.

    The column of estimates is displayed only if there is an estimate.
    """
    name, unit = objective.name, objective.unit
    title, has_estimates = header(name, unit), is_estimated(view)
    meaning = "" if unit else f" {title}: {objective.about}."
    yield Column(
        _key(name, "estimate", unit),
        title if has_estimates else "",
        lambda c: None if c.p is None else c.objectives.get(name),
        unit=unit,
        error=lambda c: c.errors.get(name),
        error_key=_key(name, "error", unit),
        about=f"±: standard error of an estimate from all trainings of the run.{meaning}",
        in_json=False,
    )
    about = "score: mean of the member's own trainings, each with another seed."
    yield Column(
        _key(name, "score", unit),
        "score" if has_estimates else title,
        lambda c: c.scores.get(name),
        unit=unit,
        error=None if has_estimates else lambda c: c.errors.get(name),
        about=about if has_estimates else "",
        in_json=False,
        rank=2 if has_estimates else 0,
    )


def _cost(view: RunView, objective: Objective) -> Iterator[Column[Candidate]]:
    name, unit = objective.name, objective.unit
    yield Column(name, header(name, unit), lambda c: c.costs.get(name), unit=unit, in_json=False)
    yield Column(
        f"{name}_times_mha",
        "× mha",
        lambda c: view.shares(c).get(name),
        text=lambda c: "" if (share := view.shares(c).get(name)) is None else f"{share:.2f}",
        rank=2,
    )


def _score(name: str, unit: str) -> Column[Candidate]:
    """Return the column of a metric that is not an objective."""
    return Column(f"{name}_score", "", lambda c: c.scores.get(name), unit=unit, in_json=False)


def _short(metric: Objective, task: str) -> Column[Candidate]:
    """Return the column of a metric's means under the short task of a run with a target task."""
    return Column(
        _key(metric.name, "short", metric.unit),
        "short",
        lambda c: c.short_scores.get(metric.name),
        unit=metric.unit,
        about=f"short: mean of the member's trainings under {task}.",
        in_json=False,
        rank=2,
    )


def _extra(name: str) -> Column[Candidate]:
    """Return the column of a cost that is not an objective."""
    title = header(name) if name in default_costs() else ""
    return Column(name, title, lambda c: c.costs.get(name), rank=3)


def _fresh(view: RunView, metric: Objective, title: str) -> Iterator[Column[Candidate]]:
    """Yield the column of a metric's means over fresh seeds, and the column of numbers of seeds.

    Fresh seeds are seeds that the search never used.

    Args:
        title: part of the confirmation, a key of ``RunView.fresh``.
    """
    name = f"{title} {metric.name}".replace(" ", "_")

    def part(field: str, candidate: Candidate) -> float | None:
        return getattr(view.fresh[title].get(candidate.key), field, None)

    yield Column(
        _key(name, "mean", metric.unit),
        title,
        partial(part, "mean"),
        unit=metric.unit,
        error=partial(part, "error"),
        error_key=_key(name, "error", metric.unit),
        about=f"{', '.join(view.fresh)}: means of trainings with fresh seeds, by `nas confirm`.",
        in_json=False,
        rank=1,
    )
    yield Column(f"{title.replace(' ', '_')}_seeds", "", partial(part, "seeds"), in_json=False)


def _key(name: str, statistic: str, unit: str) -> str:
    """Return the key of a column, such as "loss_mean" or "recall_error_fraction".

    The unit is omitted if the name of the metric contains it.
    """
    return "_".join(
        [name, statistic, *([unit] if unit and unit.lower() not in name.lower() else [])]
    )


def _text(
    key: str, title: str, value: Callable[[Candidate], str | None], **options: Any
) -> Column[Candidate]:
    return Column(key, title, value, is_number=False, **options)
