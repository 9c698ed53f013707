"""Look at a run that another process writes: from its record alone, which is never held up.

A look asks the files whether anything has changed; only then the record is opened, read at one
moment, and closed again, since an open one would keep the writer from folding its log. The longer a
look takes, the longer the next one waits.
"""

from __future__ import annotations

import contextlib
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from nas.cli.live import FRAMES_PER_SECOND, Panel, generation_line
from nas.report.table import say
from nas.report.text import plural
from nas.report.units import percent
from nas.store import open_run, stamp
from nas.store.files import typed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rich.console import Console

    from nas.store import Run
    from nas.store.records import RunStatus

    Look = Callable[[], None]
    Sleep = Callable[[float], None]

PAUSE_SECONDS: Final = 2.0
# Reading takes at most so large a share of a core.
SHARE: Final = 0.05


class Watched(Panel):
    """A run as its record tells it; its clock is the day's."""

    def rows(self) -> list[tuple[str, str]]:
        """How it stands, and what only a record tells."""
        left = self.seconds_left if self.to_go else None
        end = None if left is None else datetime.fromtimestamp(self.clock() + left).astimezone()
        soon = end is None or end.date() == datetime.fromtimestamp(self.clock()).date()
        expected = "-" if end is None else f"{end:%H:%M}" if soon else f"{end:%Y-%m-%d %H:%M}"
        return [*super().rows(), ("workers", workers_line(self)), ("expected end", expected)]


def follow(folder: Path, seen: Watched, changed: Look, *, sleep: Sleep = time.sleep) -> RunStatus:
    """Look at a run until nobody writes it any more; returns how it then stands.

    Args:
        seen: what was seen; read anew whenever the run has changed.
        changed: called after each such reading.

    Raises:
        RunError: there is no such run, or it cannot be read.
    """
    before, status = "", None
    while True:
        found, began = stamp(folder), time.process_time()
        if found != before or status == "stopped":
            last = status
            with open_run(folder) as run:
                seen.read(run)
                status = run.status
            changed()
            # A run that nobody writes may be one that is just being begun: look twice.
            if status == "finished" or status == last == "stopped":
                return status
        before = found
        sleep(max(PAUSE_SECONDS, (time.process_time() - began) / SHARE))


@contextlib.contextmanager
def shown(console: Console, seen: Watched) -> Iterator[Look]:
    """What to call when a run was read: a panel that stays in place, or a line in a pipe."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda: say(console, change_line(seen))
        return
    from rich.live import Live

    with Live(seen, console=console, refresh_per_second=FRAMES_PER_SECOND, transient=True):
        yield lambda: None


def change_line(seen: Watched) -> str:
    """How a run stands, in one line."""
    done = f"{seen.done} of {plural(seen.total, 'training')}"
    return f"{done}, {generation_line(seen)}, workers {workers_line(seen)}"


def workers_line(seen: Watched) -> str:
    """How many workers have something to train, and how much of their time lately was training."""
    assert seen.started is not None
    share = seen.busy_share
    lately = "" if share is None else f", training {percent(share)} % of the time lately"
    return f"{seen.busy} of {seen.started.workers} busy{lately}"


def why_stopped(run: Run) -> str:
    """What became of the process that wrote a run that is not finished, and how to go on."""
    on = f"`nas resume {typed(run.folder)}` goes on with it."
    sessions = run.sessions()
    if not sessions:
        return f"run {run.name!r}: nobody has begun it. {on}"
    last = sessions[-1]
    if last.ended is not None:
        return f"run {run.name!r}: it was stopped at {last.ended.astimezone():%Y-%m-%d %H:%M}. {on}"
    return (
        f"run {run.name!r}: its writer, process {last.pid} on {last.host}, is gone without a word: "
        f"it was killed, or its machine went down. Every finished training is kept. {on}"
    )
