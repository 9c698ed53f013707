"""The Pareto front of a run, which ``nas.front`` returns and ``nas front`` prints."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from nas.common.arguments import public
from nas.common.registry import plugin_files
from nas.common.text import plural, printable
from nas.report.front_columns import front_columns, is_estimated
from nas.report.result import Result, data_frame
from nas.report.run_view import RunView, task_and_data
from nas.report.table import Table, line_width, named_values, say, say_table, words
from nas.report.units import FRACTION, amount, duration, header, limit_text
from nas.store import RUNS, Candidate, RunSetup, find_run, open_run

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Front(Result):
    """The Pareto front of a run: its non-dominated mechanisms; a notebook shows their table."""

    view: RunView

    @property
    def table(self) -> pandas.DataFrame:
        """One row for each mechanism of the front, best first."""
        return Table(front_columns(self.view), self.view.members).frame()

    @property
    def mechanisms(self) -> pandas.DataFrame:
        """One row for each mechanism that the search trained, in order of proposal."""
        return Table(front_columns(self.view), [*self.view.trained.values()]).frame()

    @property
    def trainings(self) -> pandas.DataFrame:
        """One row for each training of the search and of ``nas confirm``, with its metrics.

        ``part`` is "search", "target" (the search's target task), or "fresh", "long" or "test" (of
        ``nas confirm``). ``id`` is missing if the search did not train the mechanism.
        """
        digests = {key: candidate.digest for key, candidate in self.view.trained.items()}
        rows = []
        for t in (*self.view.trainings, *self.view.confirmations):
            row = {"id": digests.get(t.key), "name": t.name, **t.to_dict(), "recorded": t.recorded}
            del row["reports"]
            rows.append(row | row.pop("budget") | row.pop("metrics"))
        return data_frame(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that ``nas front --json`` prints."""
        view, setup = self.view, self.view.setup
        rows = Table(front_columns(view), view.members).records()
        return {
            "run": view.name,
            "task": setup.front_task.name,
            "seed": setup.config.seed,
            "objectives": [
                {"name": o.name, "direction": o.direction, "unit": o.unit} for o in setup.objectives
            ],
            "reference_point": [o.corner for o in setup.objectives],
            "hypervolume": view.hypervolume,
            "counts": asdict(view.counts),
            "members": [
                self._member(member) | row for member, row in zip(view.members, rows, strict=True)
            ],
            "space": setup.space.name,
            "algorithm": setup.config.algorithm,
            "ideal_point": [o.ideal for o in setup.objectives],
            "generations": len(view.generations),
            "status": view.status,
            "wall_seconds": view.wall_seconds,
            "core_seconds": view.core_seconds,
            "hardware": list(view.hardware),
        }

    def _member(self, member: Candidate) -> dict[str, Any]:
        """Return what the JSON object has of a mechanism beside the columns of the table."""
        names = [objective.name for objective in self.view.setup.objectives]
        return {
            "objectives": {name: member.objectives[name] for name in names},
            "genome": member.proposal.genome.to_dict(),
            "standard_errors": {n: member.errors.get(n, 0.0) for n in names if member.errors},
            "scores": {n: member.scores[n] for n in names if n in member.scores},
            "repeats": len(member.scored),
            "confirmed": {
                part: cells[member.key].to_dict()
                for part, cells in self.view.fresh.items()
                if member.key in cells
            },
        }

    def plot(self) -> Any:
        """Return the front as an ``altair.Chart``; raise RunError if the run has one objective."""
        from nas.report.front_chart import front_chart

        return front_chart(self.view)

    def _repr_html_(self) -> str:
        notes = "".join(f"<p><small>{escape(line)}</small></p>" for line in _notes(self.view))
        table = Table(front_columns(self.view), self.view.members).html()
        return f"<div><p>{escape(headline(self.view))}</p>{table}{notes}</div>"


@public
def front(run: str = "latest", *, runs: str | Path = RUNS) -> Front:
    """Read the front of a run; a notebook shows it as a table.

    Examples:
        >>> front = nas.front("first")
        >>> sorted(front.table["id"]) == sorted(m.digest for m in front.view.members)
        True
        >>> set(front.trainings["part"])
        {'search'}

    Args:
        run, runs: see ``nas.api.execution``.

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    with open_run(find_run(run, Path(runs))) as opened:
        return Front(RunView.read(opened, run))


def show_front(console: Console, view: RunView) -> None:
    """Print the Pareto front of a run, with notes, totals and suggested commands."""
    say(console, headline(view), "")
    if not view.members:
        say(console, no_front(view), "")
        say_table(console, named_values(tally(view)))
        return
    base = view.reference_candidate
    is_beside = base is not None and base.objectives and base not in view.members
    shown = (*view.members, base) if base is not None and is_beside else view.members
    table = Table(front_columns(view), shown)
    say_table(console, table)
    notes = [f"Last row: {view.reference}, which is not in the front."] if is_beside else []
    say(console, "", *notes, *_notes(view, table.omitted(line_width(console))))
    say_table(console, named_values(tally(view)))
    say(console, "")
    say_table(console, next_commands(view))


def no_front(view: RunView) -> str:
    """Return the message for a run with an empty Pareto front: the reason, and what to do."""
    counts, target, label = view.counts, view.setup.target, shlex.quote(view.label)
    limits = ", ".join(limit_text(o) for o in view.setup.objectives if o.limit is not None)
    if limits and view.candidates:
        reason = (
            f"none of {len(view.candidates)} trained mechanisms is within the limits ({limits}); "
            f"`nas report {label} -o run.html` shows all of them, and `--region` of a new search "
            "changes the limits."
        )
    elif target is not None and counts.evaluated and view.status != "running":
        reason = (
            f"too few mechanisms have been trained under its target task {target.name}, which "
            f"follows after trainings under the short task; `nas resume {label} --gens N` with "
            "more generations goes on."
        )
    else:
        words, more = dict(tally(view)), f"`nas report {label} -o run.html` shows each training."
        if view.status == "stopped":
            more = f"`nas resume {label}` goes on with it."
        reason = (
            f"no training has ended well yet. Proposed: {words['proposed']}; failed: "
            f"{words['failed']}; stopped at a gate: {counts.stopped}. {more}"
        )
    return f"run {view.name!r} has no front: {reason}"


def next_commands(view: RunView) -> Table[tuple[str, str]]:
    """Return a table of suggested commands for a run and their effects."""
    run, best = shlex.quote(view.label), shlex.quote(f"{view.label}/best")
    plugins = [f"--plugin {shlex.quote(file)}" for file in plugin_files()]
    nas = " ".join(["nas", *plugins])
    commands = [
        (f"{nas} show {best}", "formula, graph, costs, results and source"),
        (f"{nas} export {best} -o champion.py", "one readable file that needs torch alone"),
        (f"{nas} front {run} --plot front.png", "this front as a picture"),
    ]
    if view.status == "stopped":
        commands.append((f"{nas} resume {run}", "go on with the search"))
    return Table([words(0, "next", style="bold"), words(1, least=28, rank=1)], commands)


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
    corner = ", ".join(
        f"{header(o.name)} {amount(o.corner, o.unit)}{' %' if o.unit == FRACTION else ''}"
        f"{'' if o.limit is None else ' (limit)'}"
        for o in view.setup.objectives
    )
    proposed = (
        f"{counts.proposed}: {counts.evaluated} evaluated, {counts.repeated} repeated, "
        f"{counts.replayed} replayed, {counts.rejected} rejected"
    )
    time = f"{duration(view.wall_seconds)}; {view.core_time}"
    return [
        ("proposed", proposed),
        ("failed", f"{counts.failed}" + (f" ({reasons})" if reasons else "")),
        *([("stopped at a gate", str(counts.stopped))] if counts.stopped else []),
        ("time", time),
        ("hypervolume", f"{view.hypervolume:.4f} (reference: {corner})"),
    ]


def _notes(view: RunView, hidden: Collection[str] = ()) -> list[str]:
    """Return the legend of the front's table without ``hidden`` columns, and further notes."""
    lines = []
    if hidden:
        command = f"nas front {shlex.quote(view.label)} | less -S"
        lines.append(f"Too wide for this terminal: {', '.join(hidden)}. `{command}` shows them.")
    shown = [column for column in front_columns(view) if column.title not in hidden]
    lines += Table(shown, view.members).legend
    if is_estimated(view) and max(len(c.scored) for c in view.candidates) == 1:
        lines.append("No mechanism was trained twice: noise, ± and p(front) are rough guesses.")
    elif not is_estimated(view) and view.setup.config.repeats > 1:
        repeats = plural(view.setup.config.repeats, "training")
        lines.append(f"±: standard error of the mean over {repeats} with different seeds.")
    elif not is_estimated(view) and view.metric is not None:
        lines.append("One training each and no estimate yet: the best of many scores is too high.")
    if len(view.hardware) > 1:
        kinds = ", ".join(view.hardware)
        lines.append(f"Trained on different hardware, which rounds differently: {kinds}.")
    ways = (t.evaluation.execution for t in view.trainings)
    if eager := Counter(way for way in ways if "capture failed" in way):
        ((way, _),) = eager.most_common(1)
        count = f"{eager.total()} of {plural(len(view.trainings), 'training')}"
        lines.append(f"{count} ran without a CUDA graph, which takes longer: {printable(way)}.")
    return lines
