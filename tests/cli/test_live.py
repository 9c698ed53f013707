"""The live display: events in, numbers out; plain lines where nobody looks at a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from nas.cli.live import Lines, Panel, display, generation_line, pace, sparkline
from nas.cli.progress import Progress
from nas.evaluation.trial import Incident
from nas.searching.listener import Ended, Evaluated, GenerationDone, Listener, Started, Together
from nas.store import Counts, candidates, open_run
from tests.recorded_run import POPULATION
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
            asked = [p for p in run.proposals() if p.is_trained]
            num_recorded = min(num_replayed * setup.population, len(asked)) * setup.repeats
            trainings = Counter[str]()
            yield Started(run.name, self.folder, setup, 2, num_recorded)
            counts = Counts()
            for generation in run.generations():
                is_replayed = generation.number < num_replayed
                for proposal in asked:
                    if proposal.number // setup.population != generation.number:
                        continue
                    repeat, key = trainings[str(proposal.key)], str(proposal.key)
                    trainings[key] += 1
                    if not is_replayed:
                        self.clock.now += SECONDS
                        evaluation = evaluations[key, repeat]
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
    for words in (
        "evaluated (1 failed)",
        "repeated",
        "replayed",
        "hypervolume 0.",
        "best ",
        "cheapest ",
    ):
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


def test_listeners_together_hear_all_that_each_would() -> None:
    """Incidents were recorded, and never said."""
    events = {name for name in vars(Listener) if name.startswith("on_")}
    assert events <= vars(Together).keys()


def test_rate_and_time_left(replayer: Replayer, clock: Clock) -> None:
    progress = replayer.progress(until=7)  # six trainings
    assert progress.done == 6
    assert progress.per_minute == pytest.approx(60 / SECONDS)
    assert progress.seconds_left == pytest.approx(SECONDS * progress.to_go)
    clock.now += 5
    assert progress.seconds_left == pytest.approx(SECONDS * progress.to_go - 5)
    clock.now += SECONDS * progress.to_go  # stuck, or stopped: it said that 0 s were left
    assert progress.seconds_left is None
    assert "left" not in pace(progress)


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
    for word in ("generations", "trainings", "best", "cheapest", "hypervolume", "repeated"):
        assert any(line.startswith(word) for line in terminal.lines)


def test_the_best_is_by_scores_in_the_first_generation_then_by_the_last_ones_estimates(
    make_run: Callable[..., Path], tmp_path: Path, clock: Clock
) -> None:
    watching = Watching(clock)
    make_run(tmp_path, generations=2, listener=watching)
    first, *bests = watching.bests
    assert len(watching.scores) > 5
    assert all(shown == best for shown, best in watching.scores)
    assert (len(bests), {*bests[:-1]}) == (POPULATION + 1, {first})
    held = watching.leaders["best"]
    assert held is not None
    assert held[0].errors
    assert f"best {100 * bests[-1]:.1f} ± " in generation_line(watching)


class Watching(Progress):
    """Compares what a search in progress shows with its record."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.scores: list[tuple[float, float]] = []
        self.bests: list[float] = []

    def on_evaluation(self, event: Evaluated) -> None:
        super().on_evaluation(event)
        if self.bests:
            self.bests.append(best_of(self))
            return
        with open_run(self._folder) as run:
            best = max(c.scores["accuracy"] for c in candidates(run))
        self.scores.append((best_of(self), best))

    def on_generation(self, event: GenerationDone) -> None:
        super().on_generation(event)
        assert best_of(self) == event.generation.best
        self.bests.append(best_of(self))


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


def test_what_befalls_machines_is_said(replayer: Replayer) -> None:
    terminal = Printed(80)
    lines = Lines(terminal.console, replayer.clock)
    replayer.tell(lines, until=1)
    lines.on_incident(Incident("waiting", "no worker \x1b[31m for 30 s."))
    assert "no worker \\u001b[31m for 30 s." in terminal.text
    panel = Panel(replayer.clock)
    replayer.tell(panel, until=1)
    panel.on_incident(Incident("node", "a worker was lost."))
    terminal.console.print(panel)
    assert "a worker was lost." in terminal.text
    replayer.tell(panel, until=2)
    assert panel.notice == ""
