"""The live display of a search: a panel that stays in place on a terminal, plain lines elsewhere.

    with display(console) as listener:
        ended = run_search(..., listener=listener)

The panel is gone when the context ends; what the run came to is the caller's to print.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from nas.cli.progress import Progress
from nas.report.facts import task_and_data
from nas.report.table import Column, cut, room, say, table_lines
from nas.report.units import duration, human, measured, plural
from nas.search.listener import Silent
from nas.store import candidates, open_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, Group, RenderableType

    from nas.cli.progress import Clock, Mark
    from nas.evaluation.record import Evaluation
    from nas.search.listener import (
        Ended,
        Evaluated,
        GenerationDone,
        GenerationStarted,
        Listener,
        Started,
    )

SECONDS_BETWEEN_LINES: Final = 30.0
FRAMES_PER_SECOND: Final = 4
BARS: Final = "▁▂▃▄▅▆▇█"
MAX_BARS: Final = 40
MAX_BAR: Final = 60


@contextlib.contextmanager
def display(console: Console, clock: Clock = time.monotonic) -> Iterator[Listener]:
    """A listener that shows a search on the console, as well as the console allows."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield Lines(console, clock)
        return
    from rich.live import Live

    panel = Panel(clock, console)
    with Live(panel, console=console, refresh_per_second=FRAMES_PER_SECOND, transient=True):
        yield panel


class _Watching(Silent):
    """Keeps the progress; its children show it."""

    def __init__(self, clock: Clock) -> None:
        self.progress: Progress | None = None
        self._clock = clock

    def on_start(self, event: Started) -> None:
        """Begin, with what the record knows already."""
        progress = Progress(event, self._clock)
        if event.num_recorded:
            with open_run(event.folder) as run:
                progress.recall(candidates(run), run.counts())
        self.progress = progress

    def on_generation_start(self, event: GenerationStarted) -> None:
        """Count what is to be done."""
        if self.progress:
            self.progress.start_generation(event)

    def on_evaluation(self, event: Evaluated) -> None:
        """Count what is done."""
        if self.progress:
            self.progress.add(event)

    def on_generation(self, event: GenerationDone) -> None:
        """Take over what the generation came to."""
        if self.progress:
            self.progress.end_generation(event)


class Panel(_Watching):
    """The display of a terminal; rich asks for it several times a second."""

    def __init__(self, clock: Clock, console: Console) -> None:
        super().__init__(clock)
        self._console = console

    def __rich__(self) -> RenderableType:
        """The panel as it is now."""
        from rich.text import Text

        if self.progress is None:
            return Text("preparing ...", "dim")
        return panel(self.progress, room(self._console) or 80)


class Lines(_Watching):
    """One line a generation, and one now and then while a generation takes long."""

    def __init__(self, console: Console, clock: Clock) -> None:
        super().__init__(clock)
        self._console = console
        self._last_line = clock()
        self._num_replayed = 0

    def on_start(self, event: Started) -> None:
        """Say what is going to be done."""
        super().on_start(event)
        assert self.progress is not None
        recorded = f", {event.num_recorded} recorded already" if event.num_recorded else ""
        self._say(f"{headline(self.progress)}; {plural(self.progress.total, 'training')}{recorded}")

    def on_generation_start(self, event: GenerationStarted) -> None:
        """Say once what was replayed."""
        super().on_generation_start(event)
        if event.to_train:
            self._tell_replayed()

    def on_evaluation(self, event: Evaluated) -> None:
        """Say now and then how far it is."""
        super().on_evaluation(event)
        if self.progress and self._clock() - self._last_line >= SECONDS_BETWEEN_LINES:
            progress = self.progress
            self._say(
                f"  generation {progress.number + 1}: {progress.generation_done} of "
                f"{progress.generation_total} trained, {pace(progress)}"
            )

    def on_generation(self, event: GenerationDone) -> None:
        """Say how it stands."""
        super().on_generation(event)
        if event.is_replayed:
            self._num_replayed += 1
        elif self.progress:
            self._say(generation_line(self.progress))

    def on_end(self, event: Ended) -> None:
        """Say what was replayed, if nothing else was done."""
        super().on_end(event)
        self._tell_replayed()

    def _tell_replayed(self) -> None:
        if self._num_replayed:
            self._say(f"{plural(self._num_replayed, 'generation')} replayed from the record")
        self._num_replayed = 0

    def _say(self, line: str) -> None:
        self._last_line = self._clock()
        say(self._console, line)


def headline(progress: Progress) -> str:
    """What is searched, in one line."""
    setup = progress.setup
    return (
        f"run {progress.run} · space {setup.space.name} · task {task_and_data(setup)} · "
        f"seed {setup.seed} · {setup.algorithm} · {plural(progress.workers, 'worker')}"
    )


def generation_line(progress: Progress) -> str:
    """How a run stands after a generation, in one line."""
    counts = progress.counts
    parts = [
        f"generation {progress.generations_done} of {progress.setup.generations}",
        f"{counts.evaluated} evaluated ({counts.failed} failed), {counts.replayed} replayed",
        f"hypervolume {progress.hypervolumes[-1]:.4f}",
    ]
    if progress.best:
        parts.append(f"best {_value(progress, progress.best, 'accuracy')}")
    if progress.cheapest and progress.cheap_objective:
        name = progress.cheap_objective.name
        parts.append(f"cheapest {_value(progress, progress.cheapest, name)}")
    return ": ".join([parts[0], ", ".join([*parts[1:], pace(progress)])])


def pace(progress: Progress) -> str:
    """Rate and time left."""
    if not progress.to_go:
        return "none to go"
    rate, left = progress.per_minute, progress.seconds_left
    if rate is None or left is None:
        return f"{progress.to_go} to go"
    return f"{progress.to_go} to go at {rate:.3g} a minute: {duration(left)} left"


def panel(progress: Progress, width: int) -> Group:
    """The panel's lines; none is wider than ``width``."""
    from rich.console import Group
    from rich.text import Text

    share = progress.done / max(1, progress.done + progress.to_go)
    length = min(width, MAX_BAR)
    filled = int(share * length)
    return Group(
        Text(cut(headline(progress), width), "bold"),
        Text.assemble(("━" * filled, "green"), ("─" * (length - filled), "dim")),
        *table_lines(_numbers(progress), width),
        Text(),
        *table_lines(_results(progress), width),
    )


def sparkline(values: tuple[float, ...]) -> str:
    """The last values as bars."""
    shown = values[-MAX_BARS:]
    if len(shown) < 2:
        return ""
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)


def _numbers(progress: Progress) -> list[Column]:
    setup, counts = progress.setup, progress.counts
    latest = f"{progress.hypervolumes[-1]:.4f}" if progress.hypervolumes else "-"
    name = progress.cheap_objective.name if progress.cheap_objective else ""
    rows = [
        (
            "generation",
            f"{min(progress.number + 1, setup.generations)} of {setup.generations}, "
            f"{progress.generation_done} of {progress.generation_total} trained",
        ),
        ("trainings", f"{progress.done} done, {pace(progress)}"),
        ("best", _mark(progress, progress.best, "accuracy")),
        ("cheapest", _mark(progress, progress.cheapest, name)),
        ("hypervolume", f"{latest}  {sparkline(progress.hypervolumes)}"),
        ("replayed", f"{counts.replayed}; rejected {counts.rejected}; failed {progress.failed}"),
    ]
    words, values = zip(*rows, strict=True)
    return [Column("", words, style="dim"), Column("", values, least=20)]


def _results(progress: Progress) -> list[Column]:
    """The last trainings, newest last."""
    last = progress.last
    return [
        Column("", tuple(event.proposal.digest[:8] for event in last), style="cyan"),
        Column("", tuple(_outcome(event.evaluation) for event in last), "right"),
        Column("", tuple(duration(event.evaluation.wall_seconds) for event in last), "right"),
        Column("", tuple(event.proposal.origin for event in last), style="dim", rank=2),
        Column("", tuple(event.proposal.formula for event in last), rank=1, least=20),
    ]


def _outcome(evaluation: Evaluation) -> str:
    if not evaluation.is_ok:
        return str(evaluation.reason).replace("_", " ")
    return "  ".join(
        measured(name, value) + (" %" if name == "accuracy" else "")
        for name, value in evaluation.objectives.items()
        if name in ("accuracy", "macs")
    )


def _mark(progress: Progress, mark: Mark | None, name: str) -> str:
    if mark is None:
        return "-"
    return f"{_value(progress, mark, name)}  {mark.digest[:8]}  {mark.formula}"


def _value(progress: Progress, mark: Mark, name: str) -> str:
    value = mark.objectives[name]
    if name == "accuracy":
        return f"{measured(name, value)} %"
    unit = next((o.unit for o in progress.setup.objectives if o.name == name), "")
    return f"{human(value)} {unit}s" if unit == "MAC" else f"{measured(name, value)} {unit}"
