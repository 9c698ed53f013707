"""The live display of a search: a bar and the front's table on a terminal, lines in a pipe.

The searching process and a watching process show the same, which they read from the run's database.
Reading never delays the writer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from rich import progress as bars
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from nas.common.text import message, plural
from nas.evaluation.trial import Incident
from nas.report.front import run_line
from nas.report.front_columns import front_columns
from nas.report.run_view import RunView
from nas.report.table import Table, say
from nas.report.units import duration, quantity
from nas.searching.listener import Evaluated, GenerationDone, Listener, Started
from nas.store import Candidate, Run, named_members, open_run
from nas.store.files import run_argument
from nas.store.records import RunStatus

MOST_MEMBERS: Final = 12
RATE_SECONDS: Final = 3600.0  # the rate of the last hour, since candidates grow or shrink
SECONDS_BETWEEN_READINGS: Final = 1.0
SECONDS_BETWEEN_LINES: Final = 600.0  # without a terminal, within a generation
PAUSE_SECONDS: Final = 2.0


class Display(Listener):
    """Displays the progress of a search: on a terminal continuously, elsewhere by lines.

    ``is_live`` says whether ``rich.live`` draws the display, from another thread. ``view`` is the
    run after its last complete generation; None before the run exists.
    """

    def __init__(self, console: Console) -> None:
        self.is_live = console.is_terminal and not console.is_dumb_terminal
        self.view: RunView | None = None
        self._console, self._last_reading = console, 0.0
        self._table: Table[Candidate] = Table((), ())
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=None),
            bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(),
            expand=True,
            speed_estimate_period=RATE_SECONDS,
        )
        self._task = self._bar.add_task("preparing", total=None)

    def read(self, run: Run) -> bool:
        """Read the progress of a run, and return whether a generation was completed since."""
        config, number = run.setup.config, len(run.generations())
        is_new = self.view is None or number > len(self.view.generations)
        if is_new:
            self.view = RunView.read(run)
            members = self.view.members[:MOST_MEMBERS] if number else ()
            self._table = Table(front_columns(self.view), members)
        self._bar.update(
            self._task,
            description=f"generation {number} of {config.generations}",
            completed=run.num_trainings(),
            total=config.generations * config.population * config.repeats,
        )
        self._last_reading = time.monotonic()
        return is_new

    @property
    def line(self) -> str:
        """Generations, trainings, named members, hypervolume, counts and the time that is left."""
        (task,) = self._bar.tasks
        trainings = f"{task.completed:.0f} of {plural(int(task.total or 0), 'training')}"
        left = [f"about {duration(task.time_remaining)} left"] if task.time_remaining else []
        return f"{task.description}: {', '.join([trainings, *self._facts(), *left])}"

    def _facts(self) -> list[str]:
        if self.view is None or not self.view.generations:
            return []
        counts, objectives, facts = self.view.counts, self.view.setup.objectives, []
        cost = next((o for o in objectives if not o.is_metric), objectives[0])
        for title, member in named_members(objectives, self.view.members).items():
            shown = cost if title == "cheapest" else objectives[0]
            value, error = member.objectives[shown.name], member.errors.get(shown.name)
            facts.append(f"{title} {quantity(value, shown.unit, error)}")
        facts += [f"estimated hypervolume {self.view.hypervolume:.4f}", f"{counts.failed} failed"]
        facts += [f"{counts.stopped} stopped at a gate"] if counts.stopped else []
        return [*facts, f"{counts.repeated} repeated", f"{counts.replayed} replayed"]

    def say_generation(self) -> None:
        """Print ``line``, unless the display is live."""
        if not self.is_live:
            say(self._console, self.line)

    def on_reference(self, done: int, total: int) -> None:
        """Show how many trainings of the mechanisms to compare with are finished."""
        about = "reference and uniform, to compare with"
        self._bar.update(self._task, description=about, completed=done, total=total)
        if not self.is_live:
            say(self._console, f"{about}: {done} of {total} trainings")

    def on_start(self, event: Started) -> None:
        """Show run, space, task, number of trainings and the run's folder."""
        self._folder, config = event.folder, event.setup.config
        total = plural(config.generations * config.population * config.repeats, "training")
        recorded = f", {event.num_recorded} recorded already" if event.num_recorded else ""
        line = run_line(event.run, event.setup, plural(event.workers, "worker"))
        say(self._console, f"{line}; {total}{recorded}, stored in {event.folder}")
        self._bar.reset(self._task)
        self._refresh()
        self._bar.advance(self._task, 0)  # the speed is measured from here on

    def on_evaluation(self, event: Evaluated) -> None:
        """Show the progress, on a terminal or by a line, unless it was shown a moment ago."""
        wait = SECONDS_BETWEEN_READINGS if self.is_live else SECONDS_BETWEEN_LINES
        if time.monotonic() - self._last_reading >= wait:
            self._refresh()
            self.say_generation()

    def on_incident(self, event: Incident) -> None:
        """Print a worker failure."""
        say(self._console, f"  {message(event.text)}")

    def on_generation(self, event: GenerationDone) -> None:
        """Show the progress after a generation, unless it ended before the run was resumed."""
        if not event.is_replayed:
            self._refresh()
            self.say_generation()

    def _refresh(self) -> None:
        with open_run(self._folder) as run:
            self.read(run)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield self._bar
        yield Text(", ".join(self._facts()), "dim")
        yield from self._table.lines(options.max_width)


@contextlib.contextmanager
def display(console: Console) -> Iterator[Display]:
    """Return a display, which on a terminal disappears when the context ends."""
    shown = Display(console)
    live = Live(shown, console=console, transient=True)
    with live if shown.is_live else contextlib.nullcontext():
        yield shown


@contextlib.contextmanager
def shown_by_default(listener: Listener | None) -> Iterator[Listener]:
    """Return a listener; if it is None, a display where people see standard output, else none."""
    plain = partial(Console, highlight=False, markup=False, emoji=False)
    console = plain()
    if listener is not None or not (console.is_terminal or console.is_jupyter):
        yield Listener() if listener is None else listener
        return
    if console.is_jupyter:  # lines of plain text; as HTML each line would be a block
        console = plain(force_jupyter=False, force_terminal=False)
    with display(console) as shown:
        yield shown


def follow(
    folder: Path, shown: Display, *, sleep: Callable[[float], None] = time.sleep
) -> RunStatus:
    """Show a run that another process writes, until it is "finished" or "stopped"; return which."""
    status = None
    while True:
        last = status
        with open_run(folder) as run:  # an open reader would keep the writer from merging its log
            if shown.read(run):
                shown.say_generation()
            status = run.status
        # A stopped run is read twice, since a writer may be starting.
        if status == "finished" or status == last == "stopped":
            return status
        sleep(PAUSE_SECONDS)


def why_stopped(run: Run) -> str:
    """Return a sentence on how the process of an unfinished run ended, and how to go on."""
    session = run.sessions()[-1]
    if session.ended is not None:
        when = f"{session.ended.astimezone():%Y-%m-%d %H:%M}"
        reason = f"it was stopped at {when}. {session.note}".rstrip()
    else:
        reason = (
            f"its writer, process {session.pid} on {session.host}, recorded no end: it was killed, "
            "or its machine went down. Every finished training is kept."
        )
    return f"run {run.name!r}: {reason} `nas resume {run_argument(run.folder)}` goes on with it."
