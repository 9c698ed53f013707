"""The Pareto front of a run, which ``nas.front`` returns, and the list of runs, as tables."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from nas.common.registry import plugin_files
from nas.common.text import plural, printable
from nas.report.columns import (
    Column,
    csv_text,
    html_table,
    json_rows,
    legend,
    rows_of,
    text_columns,
)
from nas.report.front_columns import NAMED, SURE, front_columns, is_estimated, mark
from nas.report.result import TableResult, data_frame
from nas.report.run_view import RunView, task_and_data
from nas.report.table import TextColumn, line_width, named_values, omitted, say, say_table
from nas.report.units import (
    FRACTION,
    amount,
    duration,
    header,
    limit_text,
    percent,
    quantity,
)
from nas.searching.front_file import front_answer
from nas.store import RUNS, Candidate, RunSetup, find_run, open_run

if TYPE_CHECKING:
    from nas.store import RunSummary


@dataclass(frozen=True)
class Front(TableResult):
    """The Pareto front of a run: its non-dominated mechanisms; a notebook shows their table."""

    view: RunView

    @cached_property
    def columns(self) -> list[Column[Candidate]]:
        """The columns of the table of the front, for display, CSV and data frames."""
        return front_columns(self.view)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas front --json`` prints.

        It contains the content of the run's file front.json, the table's columns of each mechanism,
        and the run's status and durations.
        """
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
            "named": {member.digest: list(view.names.get(member.key, ())) for member in members},
            "dominates": {digest: list(names) for digest, names in dominated.items()},
            "p_dominates": dominated,
            "confirmed": {member.digest: view.confirmed(member) for member in members},
        }

    def to_csv(self, *, every: bool = False) -> str:
        """Return the mechanisms of the front as CSV, best mechanism first.

        Args:
            every: whether to return all mechanisms whose trainings succeeded, in order of proposal.
        """
        return csv_text(self.columns, self.view.candidates if every else self.view.members)

    def records(self) -> list[dict[str, Any]]:
        """Return the mechanisms of the front as dicts, with the names of CSV columns as keys."""
        return rows_of(self.columns, self.view.members)

    def to_pandas(self, *, every: bool = False) -> Any:
        """Return the rows and columns of ``to_csv`` as a ``pandas.DataFrame``.

        Args:
            every: see ``to_csv``.
        """
        rows = self.view.candidates if every else self.view.members
        return data_frame(rows_of(self.columns, rows))

    def plot(self) -> Any:
        """Return the front as an ``altair.Chart``, which notebooks display.

        Raises:
            RunError: the run has one objective.
        """
        from nas.report.front_chart import front_chart

        return front_chart(self.view)

    def _repr_html_(self) -> str:
        notes = "".join(f"<p><small>{escape(line)}</small></p>" for line in _notes(self.view))
        table = html_table(self.columns, self.view.members)
        return f"<div><p>{escape(headline(self.view))}</p>{table}{notes}</div>"


def front(run: str = "latest", *, runs: str | Path = RUNS) -> Front:
    """Read the front of a run; a notebook shows it as a table.

    Examples:
        >>> front = nas.front("first")
        >>> len(front.to_pandas()) == len(front.view.members)
        True

    Args:
        run: a run's name or path, or "latest".
        runs: the folder of runs.

    Returns:
        The non-dominated mechanisms of the run with all their recorded results.

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    with open_run(find_run(run, Path(runs))) as opened:
        return Front(RunView.read(opened, run))


def show_front(console: Console, view: RunView) -> None:
    """Print the Pareto front of a run, with notes, totals and suggested commands.

    If no trained mechanism is within the limits, it prints that in place of the table. At least one
    mechanism must be trained; otherwise ``no_front`` returns the message.
    """
    say(console, headline(view), "")
    if not view.members:
        say(console, no_front(view), "")
        say_table(console, named_values(tally(view)))
        return
    base = view.standard
    is_beside = base is not None and base.objectives and base not in view.members
    shown = (*view.members, base) if base is not None and is_beside else view.members
    columns = text_columns(front_columns(view), shown)
    say_table(console, columns)
    notes = ["Last row: standard attention, which is not in the front."] if is_beside else []
    say(console, "", *notes, *_notes(view, omitted(columns, line_width(console))))
    say_table(console, named_values(tally(view)))
    say(console, "")
    say_table(console, next_commands(view))


def outside_limits(view: RunView) -> str:
    """Return a clause that says that no trained mechanism is within the limits of the run.

    The clause is empty if the run has no limits or no trained mechanism.
    """
    limits = [limit_text(o) for o in view.setup.objectives if o.limit is not None]
    if not limits or not view.candidates:
        return ""
    number, texts = len(view.candidates), ", ".join(limits)
    return f"none of {number} trained mechanisms is within the limits ({texts})"


def no_front(view: RunView) -> str:
    """Return the message for a run with an empty Pareto front: the reason, and what to do."""
    words = dict(tally(view))
    if reason := outside_limits(view):
        written = f"`nas front {shlex.quote(view.label)} --all --csv FILE` writes all of them"
        return (
            f"run {view.name!r} has no front: {reason}; {written}, and `--region` of a new search "
            "changes the limits."
        )
    target, label = view.setup.target, shlex.quote(view.label)
    if target is not None and view.counts.evaluated and view.status != "running":
        return (
            f"run {view.name!r} has no front: too few mechanisms have been trained under its "
            f"target task {target.name}, which follows after trainings under the short task; "
            f"`nas resume {label} --gens N` with more generations goes on."
        )
    more = {
        "running": "It is running: look again later.",
        "stopped": f"`nas resume {label}` goes on with it.",
        "finished": "See why in the record: table trainings of run.sqlite, column error.",
    }[view.status]
    return (
        f"run {view.name!r} has no front: no training has ended well yet. "
        f"Proposed: {words['proposed']}; failed: {words['failed']}; stopped at a gate: "
        f"{view.counts.stopped}. {more}"
    )


def next_commands(view: RunView) -> list[TextColumn]:
    """Return the columns of a table of suggested commands for a run and their effects."""
    run, best = shlex.quote(view.label), shlex.quote(f"{view.label}/best")
    plugins = [f"--plugin {shlex.quote(file)}" for file in plugin_files()]
    nas = " ".join(["nas", *plugins])
    commands = [
        (f"{nas} show {best}", "formula, graph, costs, lineage and source"),
        (f"{nas} export {best} -o champion.py", "one readable file that needs torch alone"),
        (f"{nas} front {run} --plot front.png", "this front as a picture"),
    ]
    if view.status == "stopped":
        commands.append((f"{nas} resume {run}", "go on with the search"))
    typed, about = zip(*commands, strict=True)
    return [TextColumn("next", typed, style="bold"), TextColumn("", about, least=28, rank=1)]


def headline(view: RunView) -> str:
    """Return one line on a run: name, search space, task, seed, algorithm and progress."""
    done = f"{len(view.generations)} of {plural(view.setup.config.generations, 'generation')}"
    return run_line(view.name, view.setup, f"{view.status}, {done}")


def run_line(name: str, setup: RunSetup, state: str) -> str:
    """Return one line on a run: name, search space, task, seed, algorithm and ``state``."""
    what = f"run {name} · space {setup.space.name} · task {task_and_data(setup)}"
    return f"{what} · seed {setup.config.seed} · {setup.config.algorithm} · {state}"


def tally(view: RunView) -> list[tuple[str, str]]:
    """Return a run's totals, such as proposals, failures and time, as pairs of name and text."""
    counts = view.counts
    reasons = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in view.failures.items())
    busy = "" if view.busy is None else f"; workers busy {percent(view.busy)} %"
    corner = ", ".join(
        f"{header(o.name)} {amount(o.corner, o.unit)}{' %' if o.unit == FRACTION else ''}"
        f"{'' if o.limit is None else ' (limit)'}"
        for o in view.setup.objectives
    )
    proposed = (
        f"{counts.proposed}: {counts.evaluated} evaluated, {counts.repeated} repeated, "
        f"{counts.replayed} replayed, {counts.rejected} rejected"
    )
    time = f"{duration(view.wall_seconds)}; {view.core_time}{busy}"
    return [
        ("proposed", proposed),
        ("failed", f"{counts.failed}" + (f" ({reasons})" if reasons else "")),
        *([("stopped at a gate", str(counts.stopped))] if counts.stopped else []),
        ("time", time),
        ("hypervolume", f"{view.hypervolume:.4f} (reference: {corner})"),
    ]


def runs_answer(runs: Sequence[RunSummary], problems: Sequence[Exception]) -> dict[str, Any]:
    """Return the JSON object of ``nas runs``: the runs, and the errors of unreadable runs."""
    entries = []
    for run in runs:
        plain = asdict(run) | {
            "folder": str(run.folder),
            "started": run.started.isoformat(),
            "active": run.active.isoformat(),
            "objective": run.objective.name,
        }
        entries.append({"run": plain.pop("name"), **plain})
    return {"runs": entries, "problems": [str(problem) for problem in problems]}


def runs_columns(runs: Sequence[RunSummary]) -> list[TextColumn]:
    """Return the columns of the table of runs that ``nas runs`` prints."""
    best = ["" if r.best is None else quantity(r.best, r.objective.unit) for r in runs]
    active = [f"{r.active.astimezone():%Y-%m-%d %H:%M}" for r in runs]
    volumes = ["" if r.hypervolume is None else f"{r.hypervolume:.4f}" for r in runs]
    return [
        TextColumn("run", [r.name for r in runs], style="cyan"),
        TextColumn("status", [r.status for r in runs]),
        TextColumn("space", [r.space for r in runs], rank=3),
        TextColumn("task", [r.task for r in runs], rank=4),
        TextColumn("algorithm", [r.algorithm for r in runs], rank=4),
        TextColumn("generations", [f"{r.generations_done}/{r.generations}" for r in runs], "right"),
        TextColumn("evaluated", [str(r.counts.evaluated) for r in runs], "right", rank=1),
        TextColumn("failed", [str(r.counts.failed) for r in runs], "right", rank=2),
        TextColumn("best", best, "right", rank=1),
        TextColumn("hypervolume", volumes, "right", rank=1),
        TextColumn("last active", active, rank=2),
    ]


def _notes(view: RunView, hidden: Collection[str] = ()) -> list[str]:
    """Return the legend of the front's table, and notes on the reliability of its numbers.

    Args:
        hidden: headers of columns that are not shown.
    """
    lines = []
    if hidden:
        command = f"nas front {shlex.quote(view.label)} | less -S"
        lines.append(f"Too wide for this terminal: {', '.join(hidden)}. `{command}` shows them.")
    shown = [column for column in front_columns(view) if column.title not in hidden]
    lines += legend(shown, view.members)
    if is_estimated(view) and max(len(c.scored) for c in view.candidates) == 1:
        lines.append("No mechanism was trained twice: noise, ± and p(front) are rough guesses.")
    elif not is_estimated(view) and view.setup.config.repeats > 1:
        repeats = plural(view.setup.config.repeats, "training")
        lines.append(f"±: standard error of the mean over {repeats} with different seeds.")
    elif not is_estimated(view) and view.metric is not None:
        lines.append("One training each and no estimate yet: the best of many scores is too high.")
    marks = () if NAMED in hidden else (mark(view, member) for member in view.members)
    if any(text.startswith(">") for text in marks):
        lines.append(
            f"> name: dominates that mechanism with p of at least {SURE} by values and errors."
        )
    if len(view.hardware) > 1:
        kinds = ", ".join(view.hardware)
        lines.append(f"Trained on different hardware, which rounds differently: {kinds}.")
    ways = (t.evaluation.execution for t in view.trainings)
    if eager := Counter(way for way in ways if "capture failed" in way):
        ((way, _),) = eager.most_common(1)
        count = f"{eager.total()} of {plural(len(view.trainings), 'training')}"
        lines.append(f"{count} ran without a CUDA graph, which takes longer: {printable(way)}.")
    return lines
