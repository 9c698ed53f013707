"""The live display: events in, numbers out; plain lines where nobody looks at a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from nas.cli.live import Lines, Panel, display, sparkline
from nas.cli.progress import Progress
from nas.searching.listener import (
    Ended,
    Evaluated,
    GenerationDone,
    Listener,
    Started,
)
from nas.store import Counts, open_run

SECONDS = 4.0


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
            recorded = {p.key for g in range(num_replayed) for p in run.proposals(g) if p.is_new}
            num_recorded = len(recorded) * setup.repeats
            yield Started(run.name, self.folder, setup, 2, num_recorded)
            counts = Counts()
            for generation in run.generations():
                proposals = [p for p in run.proposals(generation.number) if p.is_new]
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


def console(width: int | None = None) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=width is not None,
        color_system=None,
        _environ={},
    )


def best_of(progress: Progress) -> float:
    held = progress.leaders["best"]
    assert held is not None
    return held[0].objectives["accuracy"]


def printed(of: Console) -> str:
    assert isinstance(of.file, io.StringIO)
    return of.file.getvalue()


def test_plain_lines_say_each_generation_once(replayer: Replayer, clock: Clock) -> None:
    out = console()
    replayer.tell(Lines(out, clock))
    lines = printed(out).splitlines()
    assert lines[0].startswith("run example · space attention_v2")
    ends = [line for line in lines if line.startswith("generation ")]
    assert [line.split(":")[0] for line in ends] == [f"generation {n} of 3" for n in (1, 2, 3)]
    for words in ("evaluated (1 failed)", "replayed", "hypervolume 0.", "best ", "cheapest "):
        assert all(words in line for line in ends)
    assert ends[-1].endswith("none to go")
    assert "\x1b" not in printed(out)


def test_plain_lines_come_at_most_every_30_seconds(replayer: Replayer, clock: Clock) -> None:
    out = console()
    listener = Lines(out, clock)
    moments = []
    for event in replayer.events():
        before = len(printed(out))
        tell(listener, event)
        if len(printed(out)) > before and isinstance(event, Evaluated):
            moments.append(clock.now)
    assert moments
    assert all(b - a >= 30 for a, b in pairwise(moments))


def test_a_resumed_run_says_what_was_replayed(replayer: Replayer, clock: Clock) -> None:
    out = console()
    replayer.tell(Lines(out, clock), num_replayed=2)
    lines = printed(out).splitlines()
    assert "recorded already" in lines[0]
    assert [line for line in lines if line.startswith("generation")] == lines[-1:]
    assert lines[-1].startswith("generation 3 of 3")


def test_progress_agrees_with_the_record(
    replayer: Replayer, clock: Clock, recorded_run: Path
) -> None:
    watched = Panel(console(100), clock)
    replayer.tell(watched)
    progress = watched.progress
    assert progress is not None
    with open_run(recorded_run) as run:
        assert progress.done == len(run.evaluations())
        assert progress.counts == run.counts()
        assert progress.hypervolumes[-1] == run.generations()[-1].hypervolume
        best = run.generations()[-1].best
    assert best_of(progress) == best
    assert progress.counts.failed == 1
    assert progress.to_go == 0


def test_a_resumed_run_knows_what_was_recorded(replayer: Replayer, clock: Clock) -> None:
    whole, resumed = Panel(console(100), clock), Panel(console(100), clock)
    replayer.tell(whole)
    replayer.tell(resumed, num_replayed=2)
    assert whole.progress is not None
    assert resumed.progress is not None
    for name in ("done", "counts", "hypervolumes", "leaders", "to_go"):
        assert getattr(resumed.progress, name) == getattr(whole.progress, name), name


def test_with_a_lag_generations_overlap(replayer: Replayer, clock: Clock) -> None:
    """Trainings of the next generation end before the last one of this generation has."""
    events = list(replayer.events())
    first = next(i for i, event in enumerate(events) if isinstance(event, GenerationDone))
    watched = Panel(console(100), clock)
    for event in [
        *events[:first],
        *events[first + 1 : first + 4],
        events[first],
        *events[first + 4 :],
    ]:
        tell(watched, event)
    whole = Panel(console(100), clock)
    replayer.tell(whole)
    assert watched.progress is not None
    assert whole.progress is not None
    for name in ("done", "counts", "hypervolumes", "leaders", "to_go"):
        assert getattr(watched.progress, name) == getattr(whole.progress, name), name


def test_rate_and_time_left(replayer: Replayer, clock: Clock) -> None:
    watched = Panel(console(100), clock)
    replayer.tell(watched, until=7)  # six trainings
    progress = watched.progress
    assert progress is not None
    assert progress.done == 6
    assert progress.per_minute == pytest.approx(60 / SECONDS)
    left = progress.seconds_left
    assert left == pytest.approx(SECONDS * progress.to_go)
    clock.now += 5
    assert progress.seconds_left == pytest.approx(SECONDS * progress.to_go - 5)


def test_before_the_first_result_there_is_no_rate(replayer: Replayer, clock: Clock) -> None:
    watched = Panel(console(100), clock)
    replayer.tell(watched, until=1)
    assert watched.progress is not None
    assert watched.progress.per_minute is None
    assert watched.progress.seconds_left is None
    out = console(100)
    out.print(watched)
    assert f"0 done, {watched.progress.to_go} to go" in printed(out)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("until", [1, 2, 20, None])
def test_the_panel_fits(replayer: Replayer, clock: Clock, width: int, until: int | None) -> None:
    out = console(width)
    watched = Panel(out, clock)
    out.print(watched)
    replayer.tell(watched, until=until)
    out.print(watched)
    lines = printed(out).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 18
    for word in ("generations", "trainings", "best", "cheapest", "hypervolume", "replayed"):
        assert any(line.startswith(word) for line in lines)


def test_a_mechanism_whose_repeats_ended_before_and_after_a_resumption_can_lead(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    folder, clock = make_run(tmp_path, repeats=2, generations=1), Clock()
    start, *told = Replayer(folder, clock).events()
    whole, resumed = Progress(start, clock), Progress(start, clock)
    evaluated = [event for event in told if isinstance(event, Evaluated)]
    early = {(str(e.proposal.key), 0): e.evaluation for e in evaluated if e.repeat == 0}
    resumed.recall((), early, Counts())
    for event in evaluated:
        whole.add(event)
        if event.repeat == 1:
            resumed.add(event)
    assert resumed.leaders == whole.leaders
    assert best_of(resumed) > 0


def test_repeats_count_as_one_candidate(make_run: Callable[..., Path], tmp_path: Path) -> None:
    folder, clock = make_run(tmp_path, repeats=3, generations=1), Clock()
    watched = Panel(console(100), clock)
    Replayer(folder, clock).tell(watched)
    progress = watched.progress
    assert progress is not None
    assert progress.counts.failed == 1
    with open_run(folder) as run:
        assert best_of(progress) == run.generations()[0].best


def test_display_chooses_by_the_console(replayer: Replayer, clock: Clock) -> None:
    with display(console(), clock) as listener:
        assert isinstance(listener, Lines)
    out = console(100)
    with display(out, clock) as listener:
        assert isinstance(listener, Panel)
        replayer.tell(listener)
    # The cursor is shown again, whatever happened.
    assert printed(out).rstrip().endswith("\x1b[2K") or "\x1b[?25h" in printed(out)


def test_display_lets_go_of_the_terminal_on_an_error(clock: Clock) -> None:
    out = console(100)
    with pytest.raises(KeyboardInterrupt), display(out, clock):
        raise KeyboardInterrupt
    assert "\x1b[?25h" in printed(out)


def test_sparkline() -> None:
    assert sparkline(()) == sparkline((0.5,)) == ""
    assert sparkline((0.0, 0.5, 1.0)) == "▁▅█"
    assert sparkline((0.5, 0.5)) == "▁▁"
