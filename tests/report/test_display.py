"""The live display of a search: lines in a pipe, and a panel on a terminal."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from nas.report.display import Display, display
from nas.report.progress import Progress, generation_line, pace, read_progress
from nas.searching.listener import Evaluated, GenerationDone, Listener, Started
from nas.store import candidates, open_run
from tests.recorded_run import POPULATION, MakeRun
from tests.report.conftest import Printed

SECONDS = 4.0


def progress_of(folder: Path) -> Progress:
    with open_run(folder) as run:
        return read_progress(run)


def best_of(progress: Progress) -> float:
    return progress.leaders["best"][0].objectives["accuracy"]


def test_pipe_gets_a_line_per_generation_and_progress_every_half_minute(
    make_run: MakeRun, tmp_path: Path
) -> None:
    pipe, seconds = Printed(), count(step=SECONDS)
    make_run(tmp_path, listener=Display(pipe.console, lambda: next(seconds)))
    assert pipe.lines[0].startswith("run example · space attention_v2")
    assert "; 36 trainings" in pipe.lines[0]
    ends = [line for line in pipe.lines if line.startswith("generation ")]
    assert [line.split(":")[0] for line in ends] == [f"generation {n} of 3" for n in (1, 2, 3)]
    for fact in ("(1 failed)", "repeated", "replayed", "hypervolume 0.", "best ", "cheapest "):
        assert all(fact in line for line in ends)
    assert ends[-1].endswith("none to go")
    between = [line for line in pipe.lines if line.startswith("  ")]
    assert len(between) == 3  # a generation is 12 trainings of 4 seconds
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
        assert proposal.operator == event.proposal.operator
        if not self.num_generations and progress.leaders:  # scores until the first generation ends
            with open_run(self.folder) as run:
                assert best_of(progress) == max(c.scores["accuracy"] for c in candidates(run))
        self.after_trainings.append(progress)

    def on_generation(self, event: GenerationDone) -> None:
        self.num_generations += 1
        progress = progress_of(self.folder)
        assert progress.generations_done == self.num_generations
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
    assert progress.seconds_left(times[-1] + 5) == pytest.approx(SECONDS * progress.to_go - 5)
    stalled = times[-1] + SECONDS * progress.to_go + 1
    assert progress.seconds_left(stalled) is None
    assert "left" not in pace(progress, stalled)
    start = replace(recorded, done=0, times=times[:1])
    assert (start.per_minute, start.seconds_left(0.0)) == (None, None)
    assert pace(start, 0.0) == "36 to go"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("is_watching", [False, True])
def test_panel_fits_the_terminal(recorded_run: Path, width: int, is_watching: bool) -> None:
    terminal = Printed(width)
    panel = Display(terminal.console, is_watching=is_watching)
    terminal.console.print(panel)
    assert terminal.lines == ["preparing ..."]
    with open_run(recorded_run) as run:
        panel.read(run)
    terminal.console.print(panel)
    assert max(map(len, terminal.lines)) <= width
    assert len(terminal.lines) <= 20
    names = ["generations", "trainings", "best", "knee", "cheapest", "hypervolume", "repeated"]
    for name in [*names, *(["workers", "expected end"] if is_watching else [])]:
        assert any(line.startswith(name) for line in terminal.lines)


def test_display_depends_on_the_console_and_restores_the_cursor(recorded_run: Path) -> None:
    with display(Printed().console) as shown:
        assert not shown.is_panel
    for error in (None, KeyboardInterrupt):
        terminal = Printed(100)
        try:
            with display(terminal.console) as shown:
                assert shown.is_panel
                if error is not None:
                    raise error
        except KeyboardInterrupt:
            pass
        assert "\x1b[?25h" in terminal.text
