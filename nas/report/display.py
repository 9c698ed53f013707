"""The live display of a search: rich's progress and a table on a terminal, plain lines in a pipe.

The searching process and a watching process show the same, which they read from the run's database.
Reading takes milliseconds and never delays the writer.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from rich import progress as bars
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from nas.common.objectives import Objective
from nas.common.text import message, plural
from nas.evaluation.trial import Incident, Training
from nas.report.front import run_line
from nas.report.table import TextColumn, say, table_lines
from nas.report.units import header, quantity
from nas.searching.listener import Evaluated, GenerationDone, Listener, Started
from nas.store import (
    Candidate,
    Counts,
    Proposal,
    Run,
    RunSetup,
    change_token,
    named_members,
    open_run,
)
from nas.store.files import run_argument
from nas.store.records import RunStatus

LAST_RESULTS: Final = 5
# Trainings over which the rate is computed: recent ones, since candidates grow or shrink.
RATE_WINDOW: Final = 40
SECONDS_BETWEEN_READINGS: Final = 1.0
PAUSE_SECONDS: Final = 2.0
MAX_READING_SHARE: Final = 0.05  # share of a core that a watching process may use


@dataclass(frozen=True)
class Progress:
    """The progress of a run at one moment.

    Attributes:
        done: number of finished trainings, including trainings of earlier sessions.
        hypervolumes: hypervolume of the front after each complete generation.
        leaders: "best" (in the first objective), "knee" (the best compromise) and "cheapest" (in
            the first cost) of the front, as far as they exist.
        last: the most recent trainings, newest last, each after the proposal that it trained.
        times: when the last ``RATE_WINDOW`` trainings of the last session ended, in seconds since
            the epoch; after the start of the session if fewer trainings have ended in it.
    """

    run: str
    setup: RunSetup
    workers: int
    done: int
    counts: Counts
    hypervolumes: tuple[float, ...]
    leaders: Mapping[str, Candidate]
    last: tuple[tuple[Proposal, Training], ...]
    times: tuple[float, ...]

    @property
    def total(self) -> int:
        """Number of trainings of the whole run."""
        config = self.setup.config
        return config.generations * config.population * config.repeats

    @property
    def generations(self) -> str:
        """The number of complete generations, such as "3 of 10"."""
        return f"{len(self.hypervolumes)} of {self.setup.config.generations}"

    @property
    def per_minute(self) -> float | None:
        """Number of trainings per minute, from ``times``; None before the first training."""
        if len(self.times) < 2 or self.times[-1] <= self.times[0]:
            return None
        return 60 * (len(self.times) - 1) / (self.times[-1] - self.times[0])


def read_progress(run: Run, before: Progress | None = None) -> Progress:
    """Return the progress of a run, read from its database.

    Args:
        run: an open run.
        before: an earlier progress of the run. Its leaders are reused if no generation was
            completed since, which saves reading the front.
    """
    with run.snapshot():
        setup, sessions, generations = run.setup, run.sessions(), run.generations()
        is_known = before and before.hypervolumes and len(before.hypervolumes) == len(generations)
        leaders = before.leaders if before and is_known else None
        trainings = run.trainings(last=RATE_WINDOW)
        proposals = run.new_proposals([training.key for training in trainings[-LAST_RESULTS:]])
        since = sessions[-1].started if sessions else run.started
        recent = [t.recorded for t in trainings if t.recorded >= since]
        return Progress(
            run=run.name,
            setup=setup,
            workers=sessions[-1].session.workers if sessions else 1,
            done=run.num_trainings(),
            counts=run.counts(),
            hypervolumes=tuple(generation.hypervolume for generation in generations),
            leaders=named_members(setup.objectives, run.front()) if leaders is None else leaders,
            last=tuple(
                (proposals[training.key], training)
                for training in trainings[-LAST_RESULTS:]
                if training.key in proposals
            ),
            times=tuple(
                moment.timestamp()
                for moment in (recent if len(recent) == RATE_WINDOW else [since, *recent])
            ),
        )


def headline(progress: Progress) -> str:
    """Return a line with run, space, task, algorithm and number of workers."""
    return run_line(progress.run, progress.setup, plural(progress.workers, "worker"))


def generation_line(progress: Progress, now: float) -> str:
    """Return a line with generations, trainings, hypervolume, best mechanisms and expected end."""
    first = progress.setup.objectives[0]
    cost = next((o for o in progress.setup.objectives if not o.is_metric), first)
    leaders = progress.leaders.items()
    values = [(title, member, cost if title == "cheapest" else first) for title, member in leaders]
    parts = [
        f"{progress.done} of {plural(progress.total, 'training')}",
        *(f"{title} {_value(member, objective)}" for title, member, objective in values),
        *_facts(progress, now),
    ]
    return f"generation {progress.generations}: {', '.join(parts)}"


def _facts(progress: Progress, now: float) -> list[str]:
    counts = progress.counts
    return [
        *(f"hypervolume {value:.4f}" for value in progress.hypervolumes[-1:]),
        f"{counts.failed} failed",
        *([f"{counts.stopped} stopped at a gate"] if counts.stopped else []),
        f"{counts.repeated} repeated",
        f"{counts.replayed} replayed",
        *pace(progress, now),
    ]


def pace(progress: Progress, now: float) -> list[str]:
    """Return trainings per minute and expected end; nothing if unknown, done or overdue."""
    rate, to_go = progress.per_minute, progress.total - progress.done
    if not rate or to_go <= 0:
        return []
    end = progress.times[-1] + 60 * to_go / rate
    if end <= now:
        return []
    is_today = datetime.fromtimestamp(end).date() == datetime.fromtimestamp(now).date()
    when = f"{datetime.fromtimestamp(end):{'%H:%M' if is_today else '%Y-%m-%d %H:%M'}}"
    return [f"{rate:.3g} a minute", f"expected end {when}"]


def _value(member: Candidate, objective: Objective) -> str:
    name = objective.name
    return quantity(member.objectives[name], objective.unit, member.errors.get(name))


@contextlib.contextmanager
def display(console: Console, clock: Callable[[], float] = time.time) -> Iterator[Display]:
    """Return a display, which on a terminal disappears when the context ends."""
    shown = Display(console, clock)
    live = Live(shown, console=console, transient=True)
    with live if shown.is_live else contextlib.nullcontext():
        yield shown


@contextlib.contextmanager
def shown_by_default(listener: Listener | None) -> Iterator[Listener]:
    """Return a listener; if it is None, a display if people see standard output.

    People see standard output in a terminal and in a notebook. Elsewhere nothing is displayed.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    if listener is not None or not (console.is_terminal or console.is_jupyter):
        yield Listener() if listener is None else listener
        return
    if console.is_jupyter:  # lines of plain text; as HTML each line would be a block
        console = Console(
            force_jupyter=False, force_terminal=False, highlight=False, markup=False, emoji=False
        )
    with display(console) as shown:
        yield shown


class Display(Listener):
    """Displays the progress of a search: on a terminal continuously, elsewhere by lines.

    Args:
        console: where to print.
        clock: function that returns the seconds since the epoch.

    Attributes:
        is_live: whether ``rich.live`` draws the display, from another thread.
        progress: the progress when the database was last read; None before the run exists.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.time) -> None:
        self.is_live = console.is_terminal and not console.is_dumb_terminal
        self.progress: Progress | None = None
        self._console, self._clock, self._last_reading = console, clock, clock()
        self._bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=None),
            bars.MofNCompleteColumn(),
            expand=True,
        )
        self._task = self._bar.add_task("preparing", total=None)

    def read(self, run: Run) -> bool:
        """Read the progress of a run, and return whether a generation was completed since."""
        before, self.progress = self.progress, read_progress(run, self.progress)
        self._last_reading = self._clock()
        self._bar.update(
            self._task,
            description=f"generation {self.progress.generations}",
            completed=self.progress.done,
            total=self.progress.total,
        )
        return before is None or len(before.hypervolumes) < len(self.progress.hypervolumes)

    def say_generation(self) -> None:
        """Print a line on the last progress, unless the display is live."""
        if not self.is_live and self.progress is not None:
            say(self._console, generation_line(self.progress, self._clock()))

    def on_reference(self, done: int, total: int) -> None:
        """Show how many trainings of the mechanisms to compare with are finished."""
        about = "mha and uniform, to compare with"
        self._bar.update(self._task, description=about, completed=done, total=total)
        if not self.is_live:
            say(self._console, f"{about}: {done} of {total} trainings")

    def on_start(self, event: Started) -> None:
        """Show run, space, task and number of trainings."""
        self._folder = event.folder
        progress = self._refresh()
        recorded = f", {event.num_recorded} recorded already" if event.num_recorded else ""
        say(
            self._console,
            f"{headline(progress)}; {plural(progress.total, 'training')}{recorded}",
        )

    def on_evaluation(self, event: Evaluated) -> None:
        """Show the progress on a terminal, unless it was shown a moment ago."""
        if self.is_live and self._clock() - self._last_reading >= SECONDS_BETWEEN_READINGS:
            self._refresh()

    def on_incident(self, event: Incident) -> None:
        """Print a worker failure."""
        say(self._console, f"  {message(event.text)}")

    def on_generation(self, event: GenerationDone) -> None:
        """Show the progress after a generation, unless it ended before the run was resumed."""
        if not event.is_replayed:
            self._refresh()
            self.say_generation()

    def _refresh(self) -> Progress:
        with open_run(self._folder) as run:
            self.read(run)
        assert self.progress is not None
        return self.progress

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield self._bar
        if (progress := self.progress) is not None:
            yield Text(", ".join(_facts(progress, self._clock())), "dim")
            yield from table_lines(_columns(progress), options.max_width)


def _columns(progress: Progress) -> list[TextColumn]:
    """Return a table of the estimates of the best mechanisms and of the last trainings' results."""
    rows = []
    for title, member in progress.leaders.items():
        values = [_value(member, objective) for objective in progress.setup.objectives]
        rows.append((title, member.proposal, values))
    for proposal, training in progress.last:
        evaluation = training.evaluation
        known = {**proposal.costs, **evaluation.metrics}
        values = [
            quantity(known[objective.name], objective.unit) if objective.name in known else "-"
            for objective in progress.setup.objectives
        ]
        outcome = "" if evaluation.is_ok else (evaluation.reason or evaluation.status)
        rows.append((outcome.replace("_", " "), proposal, values))
    if not rows:
        return []
    titles, proposals, texts = zip(*rows, strict=True)
    cells = zip(progress.setup.objectives, zip(*texts, strict=True), strict=True)
    return [
        TextColumn("", titles),
        TextColumn("id", [proposal.digest[:8] for proposal in proposals], style="cyan"),
        *(TextColumn(header(o.name), column, "right", rank=1) for o, column in cells),
        TextColumn("formula", [proposal.formula for proposal in proposals], rank=2, least=20),
    ]


def follow(
    folder: Path, shown: Display, *, sleep: Callable[[float], None] = time.sleep
) -> RunStatus:
    """Show a run that another process writes, until the run ends.

    The database is opened only after its files changed, and closed after reading, since an open
    reader would keep the writer from merging SQLite's log into the database.

    Returns:
        "finished" or "stopped".

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    before, status = "", None
    while True:
        token, began = change_token(folder), time.process_time()
        if token != before or status == "stopped":
            last = status
            with open_run(folder) as run:
                if shown.read(run):
                    shown.say_generation()
                status = run.status
            # A stopped run is read twice, since a writer may be starting.
            if status == "finished" or status == last == "stopped":
                return status
        before = token
        sleep(max(PAUSE_SECONDS, (time.process_time() - began) / MAX_READING_SHARE))


def why_stopped(run: Run) -> str:
    """Return a sentence on how the process of an unfinished run ended, and how to go on."""
    sessions = run.sessions()
    if not sessions:
        reason = "nobody has begun it."
    elif (ended := sessions[-1].ended) is not None:
        reason = f"it was stopped at {ended.astimezone():%Y-%m-%d %H:%M}."
        reason += f" {run.note}" if run.note else ""
    else:
        reason = (
            f"its writer, process {sessions[-1].pid} on {sessions[-1].host}, is gone without a "
            "word: it was killed, or its machine went down. Every finished training is kept."
        )
    return f"run {run.name!r}: {reason} `nas resume {run_argument(run.folder)}` goes on with it."
