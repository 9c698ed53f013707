"""The front of a run: the result of ``nas.front``, and its display on a terminal."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console

from nas.common.text import plural
from nas.report.columns import (
    Column,
    csv_text,
    html_table,
    json_rows,
    legend,
    rows_of,
    text_columns,
)
from nas.report.front_columns import SURE, front_columns, is_estimated, mark
from nas.report.result import TableResult, data_frame
from nas.report.run_view import RunView, task_and_data
from nas.report.table import TextColumn, named_values, say, say_table
from nas.report.units import FRACTION, amount, duration, header, percent
from nas.searching.front_file import front_answer
from nas.store import RUNS, Candidate, RunSetup, find_run, open_run


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
        """The members as CSV, best first; with ``every``, all successfully trained mechanisms."""
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
        The non-dominated mechanisms of the run with all their recorded results.

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    with open_run(find_run(run, Path(runs))) as opened:
        return Front(RunView.read(opened, run))


def notes_of(view: RunView) -> list[str]:
    """The legend of the table, and notes on the reliability of its numbers."""
    lines = legend(front_columns(view), view.members)
    if is_estimated(view) and max(len(c.trainings) for c in view.candidates) == 1:
        lines.append("No mechanism was trained twice: noise, ± and p(front) are rough guesses.")
    elif not is_estimated(view) and view.setup.config.repeats > 1:
        repeats = plural(view.setup.config.repeats, "training")
        lines.append(f"±: standard error of the mean over {repeats} with different seeds.")
    elif not is_estimated(view) and view.metric is not None:
        lines.append("One training each and no estimate yet: the best of many scores is too high.")
    if any(mark(view, member).startswith(">") for member in view.members):
        lines.append(f"> name: dominates that published mechanism with p of at least {SURE}.")
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
    """The message for a run without a front: the reason, and what to do."""
    words = dict(tally(view))
    more = {
        "running": "It is running: look again later.",
        "stopped": f"`nas resume {shlex.quote(view.label)}` goes on with it.",
        "finished": "See why in the record: table trainings of run.sqlite, column error.",
    }[view.status]
    return (
        f"run {view.name!r} has no front: no training has ended well yet. "
        f"Proposed: {words['proposed']}; failed: {words['failed']}; stopped at a gate: "
        f"{view.counts.stopped}. {more}"
    )


def next_commands(view: RunView) -> list[TextColumn]:
    """A table of suggested commands and their effects."""
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
    """One line: the run, its space, task, seed and algorithm, and its progress."""
    done = f"{len(view.generations)} of {plural(view.setup.config.generations, 'generation')}"
    return run_line(view.name, view.setup, f"{view.status}, {done}")


def run_line(name: str, setup: RunSetup, state: str) -> str:
    """One line: a run's name, space, task, seed, algorithm and state."""
    what = f"run {name} · space {setup.space.name} · task {task_and_data(setup)}"
    return f"{what} · seed {setup.config.seed} · {setup.config.algorithm} · {state}"


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
