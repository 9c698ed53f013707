"""The live display of a search: a panel that stays in place on a terminal, plain lines elsewhere.

    with display() as listener:
        ended = run_search(..., listener=listener)

The panel is gone when the context ends; what the run came to is the caller's to print.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from nas.cli.console import complain, output
from nas.cli.progress import Progress
from nas.report.front import run_line
from nas.report.table import Column, cut, named_values, say, table_lines
from nas.report.text import message, plural, printable
from nas.report.units import duration, quantity
from nas.searching.listener import Together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import Console, ConsoleOptions, RenderResult

    from nas.cli.progress import Clock
    from nas.common.objectives import Objective
    from nas.evaluation.trial import Incident
    from nas.searching.listener import Evaluated, GenerationDone, Listener, Started
    from nas.store import Candidate, Counts

SECONDS_BETWEEN_LINES: Final = 30.0
FRAMES_PER_SECOND: Final = 4
BARS: Final = "▁▂▃▄▅▆▇█"
MAX_BARS: Final = 40
MAX_BAR: Final = 60


@contextlib.contextmanager
def display(console: Console | None = None, clock: Clock = time.monotonic) -> Iterator[Listener]:
    """A listener that shows a search on the console, as well as the console allows."""
    console = console or output()
    if not console.is_terminal or console.is_dumb_terminal:
        yield Lines(console, clock)
        return
    from rich.live import Live

    panel = Panel(clock)
    with Live(panel, console=console, refresh_per_second=FRAMES_PER_SECOND, transient=True):
        yield panel


@contextlib.contextmanager
def listening(tensorboard: Path | None) -> Iterator[Listener]:
    """A listener that shows a search, and writes its event files into a folder if one is given."""
    from nas.report.events import EventFiles

    files = [EventFiles(tensorboard, complain)] if tensorboard is not None else []
    with display() as shown:
        yield Together(shown, *files)


class Panel(Progress):
    """The display of a terminal; rich asks for it several times a second."""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """The panel as it is now; none of its lines is wider than the terminal."""
        from rich.text import Text

        if self.started is None:
            yield Text(self.preparing, "dim")
            return
        width = options.max_width
        length = min(width, MAX_BAR)
        filled = int(self.done / max(1, self.done + self.to_go) * length)
        yield Text(cut(printable(headline(self.started)), width), "bold")
        yield Text.assemble(("━" * filled, "green"), ("─" * (length - filled), "dim"))
        yield from table_lines(named_values(self.rows()), width)
        yield Text()
        yield from table_lines(_results(self), width)
        if self.notice:
            yield Text(cut(message(self.notice), width), "yellow")

    def rows(self) -> list[tuple[str, str]]:
        """How it stands: names and values."""
        counts = self.counts
        latest = f"{self.hypervolumes[-1]:.4f}" if self.hypervolumes else "-"
        return [
            ("generations", f"{self.generations_done} of {self.setup.generations} complete"),
            ("trainings", f"{self.done} done, {pace(self)}"),
            *((title, _mark(*held) if held else "-") for title, held in self.leaders.items()),
            ("hypervolume", f"{latest}  {sparkline(self.hypervolumes)}"),
            (
                "repeated",
                f"{counts.repeated}; replayed {counts.replayed}; rejected {counts.rejected}; "
                f"failed {counts.failed}; stopped at a gate {counts.stopped}",
            ),
        ]


class Lines(Progress):
    """One line a generation, and one now and then while a generation takes long."""

    def __init__(self, console: Console, clock: Clock) -> None:
        super().__init__(clock)
        self._console = console

    def on_reference(self, done: int, total: int) -> None:
        """Say how far the references are."""
        super().on_reference(done, total)
        self._say(self.preparing)

    def on_start(self, event: Started) -> None:
        """Say what is going to be done."""
        super().on_start(event)
        recorded = f", {event.num_recorded} recorded already" if event.num_recorded else ""
        self._say(f"{headline(event)}; {plural(self.total, 'training')}{recorded}")

    def on_evaluation(self, event: Evaluated) -> None:
        """Say now and then how far it is."""
        super().on_evaluation(event)
        if self.clock() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._say(f"  {self.done} of {plural(self.total, 'training')} done, {pace(self)}")

    def on_incident(self, event: Incident) -> None:
        """Say it."""
        super().on_incident(event)
        self._say(f"  {message(event.text)}")

    def on_generation(self, event: GenerationDone) -> None:
        """Say how it stands."""
        super().on_generation(event)
        if not event.is_replayed:
            self._say(generation_line(self))

    def _say(self, line: str) -> None:
        self._last_line = self.clock()
        say(self._console, line)


def headline(started: Started) -> str:
    """What is searched, in one line."""
    return run_line(started.run, started.setup, plural(started.workers, "worker"))


def generation_line(progress: Progress) -> str:
    """How a run stands after a generation, or during one, in one line."""
    counts, latest = progress.counts, progress.hypervolumes[-1:]
    parts = [
        f"{counts.evaluated} evaluated ({ended_early(counts)}), {counts.repeated} repeated, "
        f"{counts.replayed} replayed",
        *(f"hypervolume {value:.4f}" for value in latest),
        *(f"{title} {_value(*held)}" for title, held in progress.leaders.items() if held),
        pace(progress),
    ]
    done = f"generation {progress.generations_done} of {progress.setup.generations}"
    return f"{done}: {', '.join(parts)}"


def ended_early(counts: Counts) -> str:
    """How many failed and, where there are any, how many missed a gate."""
    gates = f", {counts.stopped} stopped at a gate" if counts.stopped else ""
    return f"{counts.failed} failed{gates}"


def pace(progress: Progress) -> str:
    """Rate and time left."""
    if not progress.to_go:
        return "none to go"
    rate, left = progress.per_minute, progress.seconds_left
    if rate is None or left is None:
        return f"{progress.to_go} to go"
    return f"{progress.to_go} to go at {rate:.3g} a minute: {duration(left)} left"


def sparkline(values: tuple[float, ...]) -> str:
    """The last values as bars."""
    shown = values[-MAX_BARS:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)


def _results(progress: Progress) -> list[Column]:
    """The last trainings, newest last."""
    last, objectives = progress.last, progress.setup.objectives
    return [
        Column("", [event.proposal.digest[:8] for event in last], style="cyan"),
        Column("", [_outcome(event, objectives) for event in last], "right"),
        Column("", [duration(event.evaluation.wall_seconds) for event in last], "right"),
        Column("", [event.proposal.operator for event in last], style="dim", rank=2),
        Column("", [event.proposal.formula for event in last], rank=1, least=20),
    ]


def _outcome(event: Evaluated, objectives: tuple[Objective, ...]) -> str:
    evaluation = event.evaluation
    if not evaluation.is_ok:
        return (evaluation.reason or evaluation.status).replace("_", " ")
    values = {**event.proposal.costs, **evaluation.metrics}
    return "  ".join(quantity(values[o.name], o.unit) for o in objectives)


def _mark(found: Candidate, objective: Objective) -> str:
    return f"{_value(found, objective)}  {found.digest[:8]}  {found.proposal.formula}"


def _value(found: Candidate, objective: Objective) -> str:
    name = objective.name
    return quantity(found.objectives[name], objective.unit, found.errors.get(name))
