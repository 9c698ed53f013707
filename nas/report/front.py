"""The front of a run: its columns, the answer of ``nas front``, and what a terminal shows of it.

``front_columns`` is the only list of what is shown of a mechanism: table, CSV, JSON, notebook and
data frame render it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.objectives import REGRET
from nas.costs import default_costs
from nas.report.columns import (
    Column,
    csv_text,
    html_table,
    json_rows,
    legend,
    rows_of,
    text_columns,
)
from nas.report.result import TableResult, data_frame
from nas.report.run_view import RunView, task_and_data
from nas.report.table import Column as TextColumn
from nas.report.table import named_values, say, say_table
from nas.report.text import plural
from nas.report.units import FRACTION, amount, duration, header, percent
from nas.searching.front_file import front_answer
from nas.store import RUNS, find_run, open_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from nas.common.objectives import Objective
    from nas.store import Candidate, RunSetup

# Costs that a terminal shows beside the objectives.
MAX_NAMES: Final = 2
SURE: Final = 0.8  # probability from which on a published mechanism counts as dominated
MIN_FORMULA: Final = 20


@dataclass(frozen=True)
class Front(TableResult):
    """The front of a run, as ``nas.front`` returns it; a notebook shows its table."""

    view: RunView

    @cached_property
    def columns(self) -> list[Column[Candidate]]:
        """The columns of its tables."""
        return front_columns(self.view)

    def to_dict(self) -> dict[str, Any]:
        """The answer of ``nas front --json``: front.json, all columns, and the run's state."""
        view, members = self.view, self.view.members
        answer = front_answer(
            view.name, view.setup, members, view.counts, view.hypervolume, len(view.generations)
        )
        entries = zip(answer["members"], json_rows(self.columns, members), strict=True)
        dominated = {member.digest: view.dominated_by(member) for member in members}
        return answer | {
            "members": [entry | values for entry, values in entries],
            "status": view.status,
            "wall_seconds": view.wall_seconds,
            "core_seconds": view.core_seconds,
            "hardware": list(view.hardware),
            "named": {member.digest: list(view.names_of(member)) for member in members},
            "dominates": {digest: list(names) for digest, names in dominated.items()},
            "p_dominates": dominated,
            "confirmed": {member.digest: view.confirmed(member) for member in members},
        }

    def to_csv(self, *, every: bool = False) -> str:
        """The members as CSV, best first; or every mechanism whose trainings ended well."""
        return csv_text(self.columns, self.view.candidates if every else self.view.members)

    def records(self) -> list[dict[str, Any]]:
        """The rows of ``to_pandas``."""
        return rows_of(self.columns, self.view.members)

    def to_pandas(self, *, every: bool = False) -> Any:
        """The columns of ``to_csv`` as a ``pandas.DataFrame``.

        Raises:
            ConfigError: pandas is not installed.
        """
        rows = self.view.candidates if every else self.view.members
        return data_frame(rows_of(self.columns, rows))

    def _repr_html_(self) -> str:
        notes = "".join(f"<p><small>{escape(line)}</small></p>" for line in notes_of(self.view))
        table = html_table(self.columns, self.view.members)
        return f"<div><p>{escape(headline(self.view))}</p>{table}{notes}</div>"


def front(run: str = "latest", *, runs: str | Path = RUNS) -> Front:
    """Read the front of a run; a notebook shows it as a table.

    >>> front = nas.front("first")
    >>> len(front.to_pandas()) == len(front.view.members)
    True

    Args:
        run: a run's name or path, or "latest".
        runs: the folder of runs.

    Returns:
        The non-dominated mechanisms of the run with all that it recorded of them.

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    with open_run(find_run(run, Path(runs))) as opened:
        return Front(RunView.read(opened, run))


def front_columns(view: RunView) -> list[Column[Candidate]]:
    """Everything that is shown of a mechanism of a run, in order."""
    objectives = view.setup.objectives
    members = {member.digest for member in view.members}
    names = {objective.name for objective in objectives}
    costs = dict.fromkeys(name for one in view.candidates for name in one.costs)
    metrics = dict.fromkeys(name for one in view.candidates for name in one.scores)
    columns: list[Column[Candidate]] = [
        Column(
            "id",
            "id",
            lambda one: one.digest,
            text=view.short,
            in_json=False,
            is_number=False,
            style="cyan",
        ),
        Column("in_front", "", lambda one: int(one.digest in members), in_json=False),
    ]
    for objective in objectives:
        columns += (_metric if objective.is_metric else _cost)(view, objective)
    columns += [_score(name, view.setup.unit(name)) for name in metrics if name not in names]
    columns += _fresh(view)
    columns.append(Column("limited_by", "limited by", _limit, is_number=False, rank=1))
    columns += [_extra(name) for name in costs if name not in names]
    is_estimated = any(one.is_estimated for one in view.members)
    return [
        *columns,
        Column(
            "seeds",
            "seeds" if is_estimated else "",
            lambda one: len(one.trainings),
            in_json=False,
            rank=4,
        ),
        Column(
            "p_non_dominated",
            "p(front)",
            lambda one: one.p,
            better="max",
            text=p_cell,
            about="p(front): probability that no trained mechanism dominates the member.",
            in_json=False,
            rank=4,
        ),
        Column(
            "name",
            "named",
            lambda one: " = ".join(view.names_of(one)),
            text=lambda one: _mark(view, one),
            is_number=False,
            rank=1,
            style="green",
        ),
        Column(
            "formula",
            "formula",
            lambda one: one.proposal.formula,
            in_json=False,
            is_number=False,
            rank=1,
            least=MIN_FORMULA,
        ),
        Column("proposed", "", lambda one: one.proposal.number),
        Column("operator", "", lambda one: one.proposal.operator, is_number=False),
        Column("parents", "", lambda one: " ".join(one.proposal.parents), is_number=False),
    ]


def _metric(view: RunView, objective: Objective) -> Iterator[Column[Candidate]]:
    """Estimate and score; before the first estimate the score stands in its place."""
    name, unit = objective.name, objective.unit
    title, is_estimated = header(name, unit), any(one.is_estimated for one in view.members)
    yield Column(
        _key(name, "estimate", unit),
        title if is_estimated else "",
        lambda one: None if one.p is None else one.objectives.get(name),
        unit=unit,
        error=lambda one: one.errors.get(name),
        error_key=_key(name, "error", unit),
        better=objective.direction,
        about="±: standard error of an estimate from all trainings of the run.",
        in_json=False,
    )
    score: Column[Candidate] = Column(
        _key(name, "score", unit),
        "score" if is_estimated else title,
        lambda one: one.scores.get(name),
        unit=unit,
        error=None if is_estimated else lambda one: one.errors.get(name),
        better=objective.direction,
        about="score: mean of the member's own trainings, each with another seed."
        if is_estimated
        else "",
        in_json=False,
        rank=2 if is_estimated else 0,
    )
    yield score


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
        text=lambda one: f"{share:.2f}" if (share := view.shares(one).get(name)) else "",
        rank=2,
    )


def _score(name: str, unit: str) -> Column[Candidate]:
    """A metric that is no objective."""
    return Column(f"{name}_score", "", lambda one: one.scores.get(name), unit=unit, in_json=False)


def _extra(name: str) -> Column[Candidate]:
    """A cost that is no objective."""
    title = header(name) if name in default_costs() else ""
    return Column(name, title, lambda one: one.costs.get(name), better="min", rank=3)


def _fresh(view: RunView) -> Iterator[Column[Candidate]]:
    """The metric in trainings with fresh seeds, by title, and the number of these."""
    metric = view.metric
    if metric is None:
        return
    for title in view.fresh:
        name = f"{title} {metric.name}".replace(" ", "_")

        def mean(one: Candidate, title: str = title) -> float | None:
            found = view.spread(title, one.key)
            return found.mean if found else None

        def error(one: Candidate, title: str = title) -> float | None:
            found = view.spread(title, one.key)
            return found.error if found else None

        def count(one: Candidate, title: str = title) -> int | None:
            found = view.spread(title, one.key)
            return found.seeds if found else None

        yield Column(
            _key(name, "mean", metric.unit),
            title,
            mean,
            unit=metric.unit,
            error=error,
            error_key=_key(name, "error", metric.unit),
            better=metric.direction,
            about=f"{', '.join(view.fresh)}: means of trainings with fresh seeds, by "
            "`nas confirm`.",
            in_json=False,
            rank=1,
        )
        yield Column(f"{title.replace(' ', '_')}_seeds", "", count, in_json=False)


def _key(name: str, what: str, unit: str) -> str:
    """The name of a column; the unit is added unless the metric's name contains it."""
    return "_".join([name, what, *([unit] if unit and unit.lower() not in name.lower() else [])])


def p_cell(one: Candidate) -> str:
    """p(front); empty before the first estimate."""
    return f"{one.p:.2f}" if one.p is not None and one.errors else ""


def _limit(one: Candidate) -> str | None:
    """Of several tasks, the one with the largest regret."""
    regrets = {name: value for name, value in one.scores.items() if name.endswith(REGRET)}
    return max(regrets, key=regrets.__getitem__).removesuffix(REGRET) if len(regrets) > 1 else None


def _mark(view: RunView, one: Candidate) -> str:
    """Its names; else the published mechanisms that it most likely dominates."""
    if names := view.names_of(one):
        return " = ".join(names)
    beaten = [name for name, p in view.dominated_by(one).items() if p >= SURE]
    more = f" +{len(beaten) - MAX_NAMES}" if len(beaten) > MAX_NAMES else ""
    return f"> {', '.join(beaten[:MAX_NAMES])}{more}" if beaten else ""


def notes_of(view: RunView) -> list[str]:
    """The legend of the table, and what limits its numbers."""
    lines = legend(front_columns(view), view.members)
    is_estimated = any(one.is_estimated for one in view.members)
    if is_estimated and max(len(one.trainings) for one in view.candidates) == 1:
        lines.append("No mechanism was trained twice: noise, ± and p(front) are rough guesses.")
    elif not is_estimated and view.setup.repeats > 1:
        repeats = plural(view.setup.repeats, "training")
        lines.append(f"±: standard error of the mean over {repeats} with different seeds.")
    elif not is_estimated and view.metric is not None:
        lines.append("One training each and no estimate yet: the best of many scores is too high.")
    if any(_mark(view, member).startswith(">") for member in view.members):
        lines.append(f"> name: dominates that published mechanism with a probability of {SURE}.")
    if len(view.hardware) > 1:
        kinds = ", ".join(view.hardware)
        lines.append(f"Trained on different hardware, which rounds differently: {kinds}.")
    return lines


def show_front(console: Console, view: RunView) -> None:
    """Print the front of a run that has one."""
    say(console, headline(view), "")
    say_table(console, text_columns(front_columns(view), view.members))
    say(console, "", *notes_of(view))
    say_table(console, named_values(tally(view)))
    say(console, "")
    say_table(console, next_commands(view))


def no_front(view: RunView) -> str:
    """Why there is no front, in a sentence or two."""
    words = dict(tally(view))
    more = {
        "running": "It is running: look again later.",
        "stopped": f"`nas resume {shlex.quote(view.label)}` goes on with it.",
        "finished": "See why in the record: table trials of run.sqlite, column error.",
    }[view.status]
    return (
        f"run {view.name!r} has no front: no training has ended well yet. "
        f"Proposed: {words['proposed']}; failed: {words['failed']}; stopped at a gate: "
        f"{view.counts.stopped}. {more}"
    )


def next_commands(view: RunView) -> list[TextColumn]:
    """What to type next, and what it does."""
    run, best = shlex.quote(view.label), shlex.quote(f"{view.label}/best")
    commands = [
        (f"nas show {best}", "formula, graph, costs, lineage and source"),
        (f"nas export {best} -o champion.py", "one readable file that needs torch alone"),
        (f"nas front {run} --plot front.png", "this front as a picture"),
    ]
    if view.status == "stopped":
        commands.append((f"nas resume {run}", "go on with the search"))
    typed, about = zip(*commands, strict=True)
    return [TextColumn("next", typed, style="bold"), TextColumn("", about, least=28, rank=1)]


def headline(view: RunView) -> str:
    """Which run this is and how it stands, in one line."""
    done = f"{len(view.generations)} of {plural(view.setup.generations, 'generation')}"
    return run_line(view.name, view.setup, f"{view.status}, {done}")


def run_line(name: str, setup: RunSetup, state: str) -> str:
    """A run's name, what it searches and how, and its state."""
    what = f"run {name} · space {setup.space.name} · task {task_and_data(setup)}"
    return f"{what} · seed {setup.seed} · {setup.algorithm} · {state}"


def tally(view: RunView) -> list[tuple[str, str]]:
    """Numbers of proposals and failures, times and hypervolume, as names and values."""
    counts = view.counts
    reasons = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in view.failures.items())
    busy = "" if view.busy is None else f"; workers busy {percent(view.busy)} %"
    reference = ", ".join(
        f"{header(o.name)} {amount(o.reference, o.unit)}{' %' if o.unit == FRACTION else ''}"
        for o in view.setup.objectives
    )
    return [
        (
            "proposed",
            f"{counts.proposed}: {counts.evaluated} evaluated, {counts.repeated} repeated, "
            f"{counts.replayed} replayed, {counts.rejected} rejected",
        ),
        ("failed", f"{counts.failed}" + (f" ({reasons})" if reasons else "")),
        *([("stopped at a gate", str(counts.stopped))] if counts.stopped else []),
        (
            "time",
            f"{duration(view.wall_seconds)}; {duration(view.core_seconds)} of core time{busy}",
        ),
        ("hypervolume", f"{view.hypervolume:.4f} (reference: {reference})"),
    ]
