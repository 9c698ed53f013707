"""The live display: events in, numbers out; plain lines where nobody looks at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from nas.cli.live import Lines, Panel, display, sparkline
from nas.cli.progress import Progress
from nas.searching.listener import Ended, Evaluated, GenerationDone, Listener, Started
from nas.store import Counts, open_run
from nas.store.database import Database
from tests.report.conftest import Printed

SECONDS = 4.0
STATE = ("done", "counts", "hypervolumes", "leaders", "to_go")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Replayer:
    """Tells a recorded run to a listener as it happened; ``replay`` as a resumed one does."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder, self.clock = folder, clock

    def events(self, num_replayed: int = 0) -> Iterator[Any]:
        with open_run(self.folder) as run:
            setup, evaluations = run.setup, run.evaluations()
            new = [p for p in run.proposals() if p.is_new]
            num_recorded = min(num_replayed * setup.population, len(new)) * setup.repeats
            yield Started(run.name, self.folder, setup, 2, num_recorded)
            counts = Counts()
            for generation in run.generations():
                proposals = [p for p in new if p.number // setup.population == generation.number]
                jobs = [(p, r) for p in proposals for r in range(setup.repeats)]
                is_replayed = generation.number < num_replayed
                for proposal, repeat in [] if is_replayed else jobs:
                    self.clock.now += SECONDS
                    evaluation = evaluations[str(proposal.key), repeat]
                    yield Evaluated(generation.number, proposal, repeat, evaluation)
                counts = counts + generation.counts
                yield GenerationDone(generation, counts, is_replayed)
            yield Ended(run.name, self.folder, "finished", 3, counts, 0.3, "Done.")

    def tell(self, listener: Listener, num_replayed: int = 0, until: int | None = None) -> None:
        for event in islice(self.events(num_replayed), until):
            tell(listener, event)

    def progress(self, num_replayed: int = 0, until: int | None = None) -> Progress:
        progress = Progress(self.clock)
        self.tell(progress, num_replayed, until)
        return progress


def tell(listener: Listener, event: Any) -> None:
    {
        Started: listener.on_start,
        Evaluated: listener.on_evaluation,
        GenerationDone: listener.on_generation,
        Ended: listener.on_end,
    }[type(event)](event)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def replayer(recorded_run: Path, clock: Clock) -> Replayer:
    return Replayer(recorded_run, clock)


def best_of(progress: Progress) -> float:
    held = progress.leaders["best"]
    assert held is not None
    return held[0].objectives["accuracy"]


def test_plain_lines_say_each_generation_once_and_now_and_then_how_far_it_is(
    replayer: Replayer, clock: Clock
) -> None:
    pipe = Printed()
    listener = Lines(pipe.console, clock)
    moments = []
    for event in replayer.events():
        before = len(pipe.text)
        tell(listener, event)
        if len(pipe.text) > before and isinstance(event, Evaluated):
            moments.append(clock.now)
    assert moments
    assert all(b - a >= 30 for a, b in pairwise(moments))
    assert pipe.lines[0].startswith("run example · space attention_v2")
    ends = [line for line in pipe.lines if line.startswith("generation ")]
    assert [line.split(":")[0] for line in ends] == [f"generation {n} of 3" for n in (1, 2, 3)]
    for words in ("evaluated (1 failed)", "replayed", "hypervolume 0.", "best ", "cheapest "):
        assert all(words in line for line in ends)
    assert ends[-1].endswith("none to go")
    assert "\x1b" not in pipe.text


def test_progress_agrees_with_the_record(replayer: Replayer, recorded_run: Path) -> None:
    progress = replayer.progress()
    with open_run(recorded_run) as run:
        assert progress.done == len(run.evaluations())
        assert progress.counts == run.counts()
        assert progress.hypervolumes[-1] == run.generations()[-1].hypervolume
        assert best_of(progress) == run.generations()[-1].best
    assert progress.counts.failed == 1
    assert progress.to_go == 0


def test_a_resumed_run_knows_what_was_recorded_and_says_so(
    replayer: Replayer, clock: Clock
) -> None:
    pipe = Printed()
    resumed = Lines(pipe.console, clock)
    replayer.tell(resumed, num_replayed=2)
    whole = replayer.progress()
    for name in STATE:
        assert getattr(resumed, name) == getattr(whole, name), name
    assert "recorded already" in pipe.lines[0]
    assert [line for line in pipe.lines if line.startswith("generation")] == pipe.lines[-1:]
    assert pipe.lines[-1].startswith("generation 3 of 3")


def test_with_a_lag_generations_overlap(replayer: Replayer, clock: Clock) -> None:
    """Trainings of the next generation end before the last one of this generation has."""
    events = list(replayer.events())
    first = next(i for i, event in enumerate(events) if isinstance(event, GenerationDone))
    done = events.pop(first)
    events.insert(first + 3, done)
    overlapping = Progress(clock)
    for event in events:
        tell(overlapping, event)
    for name in STATE:
        assert getattr(overlapping, name) == getattr(replayer.progress(), name), name


def test_rate_and_time_left(replayer: Replayer, clock: Clock) -> None:
    progress = replayer.progress(until=7)  # six trainings
    assert progress.done == 6
    assert progress.per_minute == pytest.approx(60 / SECONDS)
    assert progress.seconds_left == pytest.approx(SECONDS * progress.to_go)
    clock.now += 5
    assert progress.seconds_left == pytest.approx(SECONDS * progress.to_go - 5)


def test_before_the_first_result_there_is_no_rate(replayer: Replayer, clock: Clock) -> None:
    terminal = Printed(100)
    panel = Panel(clock)
    replayer.tell(panel, until=1)
    assert panel.per_minute is None
    assert panel.seconds_left is None
    terminal.console.print(panel)
    assert f"0 done, {panel.to_go} to go" in terminal.text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("until", [1, 2, 20, None])
def test_the_panel_fits(replayer: Replayer, clock: Clock, width: int, until: int | None) -> None:
    terminal = Printed(width)
    panel = Panel(clock)
    terminal.console.print(panel)
    replayer.tell(panel, until=until)
    terminal.console.print(panel)
    assert max(map(len, terminal.lines)) <= width
    assert len(terminal.lines) <= 18
    for word in ("generations", "trainings", "best", "cheapest", "hypervolume", "replayed"):
        assert any(line.startswith(word) for line in terminal.lines)


def test_a_mechanism_leads_once_all_its_repeats_ended_before_or_after_a_resumption(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder, clock = make_run(tmp_path, repeats=2, generations=1), Clock()
    start, *told = Replayer(folder, clock).events()
    with open_run(folder) as run:
        best, ended = run.generations()[0].best, len(run.evaluations())
    database = Database.open_to_write(folder / "run.sqlite")
    database.execute("DELETE FROM trials WHERE repeat = 1")
    database.close()
    whole, resumed = Progress(clock), Progress(clock)
    whole.on_start(start)
    resumed.on_start(replace(start, num_recorded=ended // 2))
    for event in told:
        tell(whole, event)
        if isinstance(event, Evaluated) and event.repeat == 1:
            tell(resumed, event)
    assert resumed.leaders == whole.leaders
    assert best_of(resumed) == best
    assert whole.counts.failed == 1


def test_display_chooses_by_the_console_and_lets_go_of_the_terminal(
    replayer: Replayer, clock: Clock
) -> None:
    with display(Printed().console, clock) as listener:
        assert isinstance(listener, Lines)
    terminal = Printed(100)
    with display(terminal.console, clock) as listener:
        assert isinstance(listener, Panel)
        replayer.tell(listener)
    # The cursor is shown again, whatever happened.
    assert terminal.text.rstrip().endswith("\x1b[2K") or "\x1b[?25h" in terminal.text
    terminal = Printed(100)
    with pytest.raises(KeyboardInterrupt), display(terminal.console, clock):
        raise KeyboardInterrupt
    assert "\x1b[?25h" in terminal.text


def test_sparkline() -> None:
    assert sparkline(()) == sparkline((0.5,)) == ""
    assert sparkline((0.0, 0.5, 1.0)) == "▁▅█"
    assert sparkline((0.5, 0.5)) == "▁▁"
