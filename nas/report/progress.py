"""The progress of a search, read from the run's database, and lines of text that describe it.

The searching process and a watching process read the same database. Reading takes milliseconds and
never delays the writer. A generation is ``population`` consecutive mechanisms that the search
proposed, also in a search that does not wait for whole generations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from nas.common.objectives import Objective
from nas.common.text import plural
from nas.evaluation.trial import Training
from nas.report.front import run_line
from nas.report.units import duration, quantity
from nas.searching.results import REPEAT
from nas.store import Candidate, Counts, Proposal, Run, RunSetup, named_members

LAST_RESULTS: Final = 5
# Trainings over which the rate is computed: recent ones, since candidates grow or shrink.
RATE_WINDOW: Final = 40
LEADERS: Final = ("best", "knee", "cheapest")


@dataclass(frozen=True)
class Progress:
    """The progress of a run at one moment.

    Attributes:
        run: name of the run.
        setup: settings of the run.
        workers: number of workers of the last session.
        done: number of finished trainings, including trainings of earlier sessions.
        counts: how many proposed mechanisms were evaluated, failed, repeated and so on.
        hypervolumes: hypervolume of the front after each complete generation.
        leaders: up to three non-dominated mechanisms, each with the objective to show. The keys are
            "best" (in the first objective), "knee" (the best compromise) and "cheapest" (in the
            first cost); a key without a mechanism is absent. The values are measured in the first
            generation, and estimated from all trainings afterwards.
        last: the most recent trainings, newest last, each after the proposal that it trained.
        times: when the last ``RATE_WINDOW`` trainings of the last session ended, in seconds since
            the epoch; after the start of the session if fewer trainings have ended in it.
    """

    run: str
    setup: RunSetup
    workers: int
    done: int
    counts: Counts
    hypervolumes: tuple[float, ...]
    leaders: Mapping[str, tuple[Candidate, Objective]]
    last: tuple[tuple[Proposal, Training], ...]
    times: tuple[float, ...]

    @property
    def generations_done(self) -> int:
        """Number of complete generations."""
        return len(self.hypervolumes)

    @property
    def total(self) -> int:
        """Number of trainings of the whole run."""
        config = self.setup.config
        return config.generations * config.population * config.repeats

    @property
    def to_go(self) -> int:
        """Number of trainings that are not done yet."""
        return max(0, self.total - self.done)

    @property
    def per_minute(self) -> float | None:
        """Number of trainings per minute, from ``times``; None before the first training."""
        if len(self.times) < 2 or self.times[-1] <= self.times[0]:
            return None
        return 60 * (len(self.times) - 1) / (self.times[-1] - self.times[0])

    def seconds_left(self, now: float) -> float | None:
        """Return the expected seconds until the end.

        The result is None if the rate is unknown, the run is done, or the end is overdue.
        """
        rate = self.per_minute
        if not rate or not self.to_go:
            return None
        seconds = 60 * self.to_go / rate - (now - self.times[-1])
        return seconds if seconds > 0 else None

    @property
    def busy(self) -> int:
        """Number of workers that are training.

        The number is at most the number of proposed trainings that have no result yet.
        """
        counts = self.counts
        first = counts.proposed - counts.repeated - counts.replayed - counts.rejected
        under_way = first * self.setup.config.repeats + counts.repeated - self.done
        return max(0, min(self.workers, under_way))


def read_progress(run: Run, before: Progress | None = None) -> Progress:
    """Return the progress of a run, read from its database.

    Args:
        run: an open run.
        before: an earlier progress of the run. Its leaders are reused if no generation was
            completed since, which saves reading the front.
    """
    with run.snapshot():
        setup, counts, done = run.setup, run.counts(), run.num_trainings()
        sessions, generations = run.sessions(), run.generations()
        trainings = run.trainings(last=RATE_WINDOW)
        is_known = before and before.hypervolumes and len(before.hypervolumes) == len(generations)
        leaders = before.leaders if before and is_known else _leaders(run, setup)
        last = _with_proposals(run, setup, trainings[-LAST_RESULTS:])
    since = sessions[-1].started if sessions else run.started
    recent = [training for training in trainings if training.recorded >= since]
    if len(recent) == len(trainings) == RATE_WINDOW:
        since, *recent = recent[0].recorded, *recent[1:]
    return Progress(
        run=run.name,
        setup=setup,
        workers=sessions[-1].session.workers if sessions else 1,
        done=done,
        counts=counts,
        hypervolumes=tuple(generation.hypervolume for generation in generations),
        leaders=leaders,
        last=last,
        times=tuple(t.timestamp() for t in (since, *(training.recorded for training in recent))),
    )


def _leaders(run: Run, setup: RunSetup) -> dict[str, tuple[Candidate, Objective]]:
    objectives = setup.objectives
    members = named_members(objectives, run.front())
    costs = [objective for objective in objectives if not objective.is_metric]
    shown = zip(LEADERS, (objectives[0], objectives[0], *costs[:1]), strict=False)
    return {title: (members[title], objective) for title, objective in shown if title in members}


def _with_proposals(
    run: Run, setup: RunSetup, trainings: tuple[Training, ...]
) -> tuple[tuple[Proposal, Training], ...]:
    proposals = run.new_proposals([training.key for training in trainings])
    pairs = []
    for training in trainings:
        if proposal := proposals.get(training.key):
            if training.repeat >= setup.config.repeats:
                proposal = replace(proposal, operator=REPEAT)
            pairs.append((proposal, training))
    return tuple(pairs)


def headline(progress: Progress) -> str:
    """Return a line with run, space, task, algorithm and number of workers."""
    return run_line(progress.run, progress.setup, plural(progress.workers, "worker"))


def generation_line(progress: Progress, now: float) -> str:
    """Return a line with generations, training numbers, hypervolume, leaders and expected end."""
    counts = progress.counts
    gates = f", {counts.stopped} stopped at a gate" if counts.stopped else ""
    parts = [
        f"{counts.evaluated} evaluated ({counts.failed} failed{gates})",
        f"{counts.repeated} repeated",
        f"{counts.replayed} replayed",
        *(f"hypervolume {value:.4f}" for value in progress.hypervolumes[-1:]),
        *(f"{title} {value_of(*leader)}" for title, leader in progress.leaders.items()),
        pace(progress, now),
    ]
    done = f"generation {progress.generations_done} of {progress.setup.config.generations}"
    return f"{done}: {', '.join(parts)}"


def change_line(progress: Progress, now: float) -> str:
    """Return a line: number of trainings, ``generation_line``, and number of busy workers."""
    done = f"{progress.done} of {plural(progress.total, 'training')}"
    workers = f"workers {progress.busy} of {progress.workers} busy"
    return f"{done}, {generation_line(progress, now)}, {workers}"


def pace(progress: Progress, now: float) -> str:
    """Return a text: number of trainings to go, trainings per minute, and expected end."""
    if not progress.to_go:
        return "none to go"
    rate, seconds = progress.per_minute, progress.seconds_left(now)
    if rate is None or seconds is None:
        return f"{progress.to_go} to go"
    return f"{progress.to_go} to go at {rate:.3g} a minute: {duration(seconds)} left"


def end_text(progress: Progress, now: float) -> str:
    """Return the expected end of a search as a time of day, with the date unless it is today."""
    seconds = progress.seconds_left(now)
    if seconds is None:
        return "-"
    end = datetime.fromtimestamp(now + seconds).astimezone()
    is_today = end.date() == datetime.fromtimestamp(now).date()
    return f"{end:%H:%M}" if is_today else f"{end:%Y-%m-%d %H:%M}"


def value_of(candidate: Candidate, objective: Objective) -> str:
    """Return a candidate's value of an objective with its standard error."""
    name = objective.name
    return quantity(candidate.objectives[name], objective.unit, candidate.errors.get(name))
