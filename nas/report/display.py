"""The live display of a search: a panel on a terminal, plain lines in a pipe.

    with display(Console()) as listener:
        result = nas.search(..., listener=listener)

The searching process and a watching process show the same display. They read the progress from the
run's database by the module ``nas.report.progress``. The panel disappears when the context ends.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.text import Text

from nas.common.text import message, plural, printable
from nas.evaluation.trial import Incident
from nas.report.progress import (
    LEADERS,
    Progress,
    change_line,
    end_text,
    generation_line,
    headline,
    pace,
    read_progress,
    value_of,
)
from nas.report.table import TextColumn, cut, named_values, say, table_lines
from nas.report.units import duration, quantity
from nas.searching.listener import Evaluated, GenerationDone, Listener, Started
from nas.store import Run, change_token, open_run
from nas.store.files import run_argument
from nas.store.records import RunStatus

SECONDS_BETWEEN_LINES: Final = 30.0
SECONDS_BETWEEN_READINGS: Final = 1.0  # for the panel
FRAMES_PER_SECOND: Final = 4
PAUSE_SECONDS: Final = 2.0
MAX_READING_SHARE: Final = 0.05  # share of a core that a watching process may use
BARS: Final = "▁▂▃▄▅▆▇█"
MAX_BARS: Final = 40
MAX_BAR_WIDTH: Final = 60


@contextlib.contextmanager
def display(
    console: Console, clock: Callable[[], float] = time.time, *, is_watching: bool = False
) -> Iterator[Display]:
    """Return a display that is a panel on a terminal and prints lines elsewhere."""
    shown = Display(console, clock, is_watching=is_watching)
    if not shown.is_panel:
        yield shown
        return
    from rich.live import Live

    with Live(shown, console=console, refresh_per_second=FRAMES_PER_SECOND, transient=True):
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
    """Displays the progress of a search.

    On a terminal the display is a panel, which rich draws several times a second from another
    thread. Elsewhere it prints a line for each generation, and a line every half minute in long
    generations.

    Args:
        console: where to print.
        clock: function that returns the seconds since the epoch.
        is_watching: whether another process searches. The display then also shows busy workers and
            the expected end.

    Attributes:
        is_panel: whether the display is a panel.
        progress: the progress when the database was last read; None before the run exists.
        notice: the message of the last worker failure; empty after the next training.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.time,
        *,
        is_watching: bool = False,
    ) -> None:
        self.is_panel = console.is_terminal and not console.is_dumb_terminal
        self.progress: Progress | None = None
        self.notice = ""
        self._preparing = "preparing ..."
        self._console, self._clock, self._is_watching = console, clock, is_watching
        self._last_shown = clock()

    def read(self, run: Run) -> Progress:
        """Read the progress of a run, store it in ``progress``, and return it.

        The function also prints a line about the progress if another process searches.
        """
        self.progress = read_progress(run, self.progress)
        if self._is_watching:
            self._say(change_line(self.progress, self._clock()))
        return self.progress

    def on_reference(self, done: int, total: int) -> None:
        """Show how many trainings of the mechanisms to compare with are finished."""
        self._preparing = f"mha and uniform, to compare with: {done} of {total} trainings"
        self._say(self._preparing)

    def on_start(self, event: Started) -> None:
        """Show run, space, task and number of trainings."""
        self._folder = event.folder
        progress = self._refresh()
        recorded = f", {event.num_recorded} recorded already" if event.num_recorded else ""
        self._say(f"{headline(progress)}; {plural(progress.total, 'training')}{recorded}")

    def on_evaluation(self, event: Evaluated) -> None:
        """Show the progress, unless it was shown a moment ago."""
        self.notice = ""
        pause = SECONDS_BETWEEN_READINGS if self.is_panel else SECONDS_BETWEEN_LINES
        if self._clock() - self._last_shown >= pause:
            progress = self._refresh()
            done = f"{progress.done} of {plural(progress.total, 'training')} done"
            self._say(f"  {done}, {pace(progress, self._clock())}")

    def on_incident(self, event: Incident) -> None:
        """Show a worker failure, which the panel keeps until the next training ends."""
        self.notice = event.text
        self._say(f"  {message(event.text)}")

    def on_generation(self, event: GenerationDone) -> None:
        """Show the progress after a generation, unless it ended before the run was resumed."""
        if not event.is_replayed:
            self._say(generation_line(self._refresh(), self._clock()))

    def _refresh(self) -> Progress:
        with open_run(self._folder) as run:
            return self.read(run)

    def _say(self, line: str) -> None:
        self._last_shown = self._clock()
        if not self.is_panel:
            say(self._console, line)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Return the lines of the panel, which are not wider than the terminal."""
        progress, width = self.progress, options.max_width
        if progress is None:
            yield Text(self._preparing, "dim")
            return
        total = max(1, progress.done + progress.to_go)
        yield Text(cut(printable(headline(progress)), width), "bold")
        yield ProgressBar(total, progress.done, width=min(width, MAX_BAR_WIDTH))
        yield Segment.line()
        yield from table_lines(named_values(self._rows(progress)), width)
        yield Text()
        yield from table_lines(_results(progress), width)
        if self.notice:
            yield Text(cut(message(self.notice), width), "yellow")

    def _rows(self, progress: Progress) -> list[tuple[str, str]]:
        counts, now = progress.counts, self._clock()
        latest = f"{progress.hypervolumes[-1]:.4f}" if progress.hypervolumes else "-"
        leaders = dict.fromkeys(LEADERS, "-")
        for title, (candidate, objective) in progress.leaders.items():
            value = value_of(candidate, objective)
            leaders[title] = f"{value}  {candidate.digest[:8]}  {candidate.proposal.formula}"
        generations = f"{progress.generations_done} of {progress.setup.config.generations} complete"
        rows = [
            ("generations", generations),
            ("trainings", f"{progress.done} done, {pace(progress, now)}"),
            *leaders.items(),
            ("hypervolume", f"{latest}  {sparkline(progress.hypervolumes)}"),
            (
                "repeated",
                f"{counts.repeated}; replayed {counts.replayed}; rejected {counts.rejected}; "
                f"failed {counts.failed}; stopped at a gate {counts.stopped}",
            ),
        ]
        if self._is_watching:
            workers = f"{progress.busy} of {progress.workers} busy"
            rows += [("workers", workers), ("expected end", end_text(progress, now))]
        return rows


def sparkline(values: tuple[float, ...]) -> str:
    """Return a string of bars whose heights are the last ``MAX_BARS`` values.

    The string is empty for fewer than two values.
    """
    shown = values[-MAX_BARS:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)


def _results(progress: Progress) -> list[TextColumn]:
    proposals = [proposal for proposal, _ in progress.last]
    evaluations = [training.evaluation for _, training in progress.last]

    outcomes = []
    for proposal, evaluation in zip(proposals, evaluations, strict=True):
        if evaluation.is_ok:
            values = {**proposal.costs, **evaluation.metrics}
            texts = [quantity(values[o.name], o.unit) for o in progress.setup.objectives]
            outcomes.append("  ".join(texts))
        else:
            outcomes.append((evaluation.reason or evaluation.status).replace("_", " "))
    return [
        TextColumn("", [proposal.digest[:8] for proposal in proposals], style="cyan"),
        TextColumn("", outcomes, "right"),
        TextColumn("", [duration(evaluation.wall_seconds) for evaluation in evaluations], "right"),
        TextColumn("", [proposal.operator for proposal in proposals], style="dim", rank=2),
        TextColumn("", [proposal.formula for proposal in proposals], rank=1, least=20),
    ]


def follow(
    folder: Path, shown: Display, *, sleep: Callable[[float], None] = time.sleep
) -> RunStatus:
    """Show a run that another process writes, until the run ends.

    The database is opened only after its files changed, and closed after reading, since an open
    reader would keep the writer from merging SQLite's log into the database.

    Args:
        folder: folder of the run.
        shown: the display.
        sleep: function that waits for a number of seconds.

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
                shown.read(run)
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
