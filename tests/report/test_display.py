"""The live display of a search: lines in a pipe, a bar and a table on a terminal."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from nas.report.display import (
    Display,
    Progress,
    display,
    generation_line,
    pace,
    read_progress,
)
from nas.searching.listener import Evaluated, GenerationDone, Listener, Started
from nas.store import open_run
from tests.recorded_run import POPULATION, MakeRun
from tests.report.conftest import Printed

SECONDS = 4.0


def progress_of(folder: Path) -> Progress:
    with open_run(folder) as run:
        return read_progress(run)


def best_of(progress: Progress) -> float:
    return progress.leaders["best"].objectives["accuracy"]


def test_pipe_gets_a_line_per_generation(make_run: MakeRun, tmp_path: Path) -> None:
    pipe = Printed()
    make_run(tmp_path, listener=Display(pipe.console))
    first, *ends = pipe.lines
    assert first.startswith("run example · space attention_v2")
    assert first.endswith("; 36 trainings")
    assert [line.split(",")[0] for line in ends] == [
        f"generation {n} of 3: {12 * n} of 36 trainings" for n in (1, 2, 3)
    ]
    for fact in ("best ", "cheapest ", "hypervolume 0.", "1 failed", "repeated", "replayed"):
        assert all(fact in line for line in ends)
    assert "\x1b" not in pipe.text


class Readings(Listener):
    """Reads the progress after each event, as the display does."""

    def __init__(self) -> None:
        self.after_trainings: list[Progress] = []
        self.num_generations = 0

    def on_start(self, event: Started) -> None:
        self.folder = event.folder

    def on_evaluation(self, event: Evaluated) -> None:
        progress = progress_of(self.folder)
        proposal, training = progress.last[-1]
        assert training.evaluation == event.evaluation
        assert proposal.digest == event.proposal.digest
        if not self.num_generations and progress.leaders:  # scores until the first generation ends
            with open_run(self.folder) as run:
                assert best_of(progress) == max(
                    c.scores["accuracy"] for c in run.candidates() if c.is_ok
                )
        self.after_trainings.append(progress)

    def on_generation(self, event: GenerationDone) -> None:
        self.num_generations += 1
        progress = progress_of(self.folder)
        assert len(progress.hypervolumes) == self.num_generations
        assert progress.counts == event.counts
        assert progress.hypervolumes[-1] == event.generation.hypervolume
        assert best_of(progress) == event.generation.best


def test_progress_is_current_after_each_event(make_run: MakeRun, tmp_path: Path) -> None:
    readings = Readings()
    progress = progress_of(make_run(tmp_path, generations=2, listener=readings))
    assert [p.done for p in readings.after_trainings] == list(range(1, 2 * POPULATION + 1))
    assert f"best {100 * best_of(progress):.1f} ± " in generation_line(progress, 0.0)


def test_rate_and_time_left(recorded_run: Path) -> None:
    recorded = progress_of(recorded_run)
    # The clock of the recorded run advances by a minute with every record.
    assert recorded.per_minute == pytest.approx(0.9, abs=0.11)
    times = tuple(SECONDS * i for i in range(7))
    progress = replace(recorded, done=6, times=times)
    assert progress.per_minute == pytest.approx(60 / SECONDS)
    end = times[-1] + SECONDS * (progress.total - 6)
    clock = datetime.fromtimestamp(end)
    assert pace(progress, end - 5) == ["15 a minute", f"expected end {clock:%H:%M}"]
    assert pace(progress, end - 10 * 86_400)[1] == f"expected end {clock:%Y-%m-%d %H:%M}"
    assert pace(progress, end + 1) == []  # overdue
    assert pace(replace(progress, done=progress.total), 0.0) == []
    assert pace(replace(recorded, done=0, times=times[:1]), 0.0) == []


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_display_fits_the_terminal(recorded_run: Path, width: int) -> None:
    terminal = Printed(width)
    shown = Display(terminal.console)
    terminal.console.print(shown)
    assert terminal.text.startswith("preparing")
    with open_run(recorded_run) as run:
        assert shown.read(run)
        assert not shown.read(run)
    terminal.console.print(shown)
    assert max(map(len, terminal.lines)) <= width
    assert len(terminal.lines) <= 20
    for name in ["generation ", "best ", "knee ", "cheapest "]:
        assert any(line.startswith(name) for line in terminal.lines)
    if width >= 80:
        assert "accuracy" in terminal.text
        assert "36/36" in terminal.text


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_display_depends_on_the_console_and_restores_the_cursor(
    error: type[BaseException] | None,
) -> None:
    with display(Printed().console) as shown:
        assert not shown.is_live
    terminal = Printed(100)
    with contextlib.suppress(KeyboardInterrupt), display(terminal.console) as shown:
        assert shown.is_live
        if error is not None:
            raise error
    assert "\x1b[?25h" in terminal.text
