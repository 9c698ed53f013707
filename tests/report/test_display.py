"""The live display of a search: lines in a pipe, and a panel on a terminal."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nas.evaluation.trial import Incident
from nas.report.display import Display, display, sparkline
from nas.report.progress import Progress, end_text, generation_line, pace, read_progress
from nas.searching.listener import Evaluated, GenerationDone, Listener, Started
from nas.store import candidates, open_run
from tests.recorded_run import NOON, POPULATION, MakeRun, go_on
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


def test_resumed_run_prints_new_generations_only(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(tmp_path, generations=2, is_finished=False)
    pipe = Printed()
    go_on(folder, generations=3, listener=Display(pipe.console))
    ends = [line for line in pipe.lines if line.startswith("generation")]
    assert len(ends) == 1
    assert ends[0].startswith("generation 3 of 3")
    start = Started("example", folder, progress_of(folder).setup, 2, num_recorded=24)
    Display(pipe.console).on_start(start)
    assert pipe.lines[-1].endswith("; 36 trainings, 24 recorded already")


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


def test_busy_workers_are_bounded_by_proposals_without_result(
    make_run: MakeRun, tmp_path: Path
) -> None:
    readings = Readings()
    make_run(tmp_path, generations=1, repeats=2, listener=readings)
    busy = [(progress.done, progress.busy) for progress in readings.after_trainings]
    assert busy[:3] == [(1, 2), (2, 2), (3, 2)]
    assert busy[-3:] == [(22, 2), (23, 1), (24, 0)]


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


def test_expected_end_is_a_time_of_day_or_a_date(recorded_run: Path) -> None:
    noon = NOON.timestamp()
    progress = replace(progress_of(recorded_run), done=35, times=(noon - 60, noon))
    assert len(end_text(progress, noon)) == len("12:01")
    late = replace(progress, times=(noon - 10**6, noon))
    assert len(end_text(late, noon)) == len("2026-03-12 12:00")
    assert end_text(replace(progress, done=36), noon) == "-"


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


def test_sparkline() -> None:
    assert sparkline(()) == sparkline((0.5,)) == ""
    assert sparkline((0.0, 0.5, 1.0)) == "▁▅█"
    assert sparkline((0.5, 0.5)) == "▁▁"


def test_incidents_are_shown_until_the_next_training_ends(recorded_run: Path) -> None:
    pipe, terminal = Printed(), Printed(80)
    Display(pipe.console).on_incident(Incident("waiting", "no worker \x1b[31m for 30 s."))
    assert "no worker \\u001b[31m for 30 s." in pipe.text
    panel = Display(terminal.console)
    setup = progress_of(recorded_run).setup
    panel.on_start(Started("example", recorded_run, setup, 2, 0))
    panel.on_incident(Incident("node", "a worker was lost."))
    terminal.console.print(panel)
    assert "a worker was lost." in terminal.text
    event: Any = None
    panel.on_evaluation(event)
    assert panel.notice == ""
