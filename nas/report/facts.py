"""What a table or a picture of a run needs, read from its record at one moment.

Which mechanisms of the run are named ones is taken from the record as well (the search seeds them
and writes down their names): telling it from the genomes would need torch.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from nas.config import parse_yaml
from nas.errors import RunError
from nas.pareto import dominates
from nas.report.units import duration, human, percent, plural
from nas.store import as_costs, candidates, find_proposal, front, front_hypervolume
from nas.store.front import NAMED_MEMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.evaluation.record import Evaluation, Objective
    from nas.store import Candidate, Run, RunSetup, RunSummary
    from nas.store.records import Generation, PastSession

NAMED_ORIGIN: Final = "mechanism:"
STANDARD: Final = "mha"
ID_LENGTH: Final = 8


@dataclass(frozen=True)
class Facts:
    """A run at one moment.

    Attributes:
        setup, summary: what it was begun with and how it stands.
        candidates: all whose training ended well, in order of their proposal.
        members: the front among them, best first objective first.
        titles: best, knee and cheapest by digest; a member may be several.
        names: the names of mechanisms by resolved digest; at small sizes one may have several.
        hypervolume: of the members, a share of the recorded box.
        id_length: characters of a digest that tell all of the run's apart, at least 8.
        failures: failed candidates by reason.
        core_seconds: over all trainings; wall_seconds: over all complete generations.
        busy: share of the workers' time that was training, from the second generation on (the
            first one waits for workers to start); None where there is no second.
        overhead: share of the time from then on in which not even the busiest worker of a
            generation trained: proposing, recording and handing out jobs.
    """

    setup: RunSetup
    summary: RunSummary
    candidates: tuple[Candidate, ...]
    members: tuple[Candidate, ...]
    titles: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[str, ...]]
    hypervolume: float
    id_length: int
    failures: Mapping[str, int]
    core_seconds: float
    wall_seconds: float
    busy: float | None
    overhead: float | None

    @property
    def named(self) -> tuple[tuple[str, Candidate], ...]:
        """The named mechanisms that were trained, each with its names."""
        found = ((self.names_of(candidate), candidate) for candidate in self.candidates)
        return tuple((" = ".join(names), candidate) for names, candidate in found if names)

    @property
    def standard(self) -> Candidate | None:
        """Standard attention as measured in this run."""
        found = (c for c in self.candidates if STANDARD in self.names_of(c))
        return next(found, None)

    def names_of(self, candidate: Candidate) -> tuple[str, ...]:
        """The names of mechanisms that the candidate is, at this task's sizes."""
        return self.names.get(candidate.proposal.key or "", ())

    def beaten_by(self, member: Candidate) -> tuple[str, ...]:
        """The named mechanisms that a candidate dominates, as measured."""
        costs = self.costs(member)
        beaten = [c for c in self.candidates if dominates(costs, self.costs(c))]
        return tuple(name for other in beaten for name in self.names_of(other))

    def costs(self, candidate: Candidate) -> tuple[float, ...]:
        """The run's objectives of a candidate, lower is better."""
        return as_costs(self.setup.objectives, candidate.objectives)

    def short(self, candidate: Candidate) -> str:
        """The beginning of a candidate's digest that names it alone."""
        return candidate.digest[: self.id_length]


def gather(run: Run) -> Facts:
    """Read the facts of a run."""
    with run.snapshot():
        members = front(run)
        evaluations = run.evaluations()
        busy, overhead = _use_of_time(run, evaluations)
        failed = {key: e.reason for (key, _), e in evaluations.items() if not e.is_ok}
        return Facts(
            setup=run.setup,
            summary=run.summary(),
            candidates=candidates(run),
            members=members,
            titles=_titles(run) if members else {},
            names=_names(run),
            hypervolume=front_hypervolume(run, members),
            id_length=id_length(run.digests()),
            failures=dict(Counter(str(reason) for reason in failed.values())),
            core_seconds=math.fsum(e.core_seconds for e in evaluations.values()),
            wall_seconds=math.fsum(
                (g.finished - g.started).total_seconds() for g in run.generations()
            ),
            busy=busy,
            overhead=overhead,
        )


def id_length(digests: Sequence[str]) -> int:
    """How many characters tell sorted digests apart; at least 8."""
    shared = max(map(_shared, digests, digests[1:]), default=0)
    return max(ID_LENGTH, shared + 1)


def task_and_data(setup: RunSetup) -> str:
    """The task's name and, from the run's frozen copy, what it was trained on."""
    copy = parse_yaml(setup.task.text, setup.task.name)
    data = copy.get("data") if isinstance(copy, dict) else None
    if not data:
        return setup.task.name
    # A folder's whole path may say more than its owner would.
    kind, _, path = str(data).partition(":")
    return f"{setup.task.name} on {f'folder {PurePath(path).name}' if path else kind}"


def headline(facts: Facts) -> str:
    """Which run this is and how it stands, in one line."""
    summary = facts.summary
    return (
        f"run {summary.name} · space {summary.space} · task {task_and_data(facts.setup)} · "
        f"seed {summary.seed} · {summary.algorithm} · {summary.status}, "
        f"{summary.generations_done} of {plural(summary.generations, 'generation')}"
    )


def tally(facts: Facts) -> list[tuple[str, str]]:
    """What became of all proposals, how long it took and what it won: names and values."""
    counts = facts.summary.counts
    reasons = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in facts.failures.items())
    wall, core = duration(facts.wall_seconds), duration(facts.core_seconds)
    busy = ""
    if facts.busy is not None and facts.overhead is not None:
        busy = f"; workers busy {percent(facts.busy)} %, search itself {percent(facts.overhead)} %"
    return [
        (
            "proposed",
            f"{counts.proposed}: {counts.evaluated} evaluated, {counts.replayed} replayed,"
            f" {counts.rejected} rejected",
        ),
        ("failed", f"{counts.failed}" + (f" ({reasons})" if reasons else "")),
        ("time", f"{wall}; {core} of core time in training{busy}"),
        ("hypervolume", f"{facts.hypervolume:.4f} (reference: {reference(facts)})"),
    ]


def reference(facts: Facts) -> str:
    """The hypervolume's reference point, in words."""
    setup = facts.setup
    return ", ".join(
        f"{objective.name} {_point(objective, value)}"
        for objective, value in zip(setup.objectives, setup.reference_point, strict=True)
    )


def _point(objective: Objective, value: float) -> str:
    return f"{percent(value)} %" if objective.name == "accuracy" else human(value)


def _use_of_time(
    run: Run, evaluations: Mapping[tuple[str, int], Evaluation]
) -> tuple[float | None, float | None]:
    """``busy`` and ``overhead`` of the generations that a session did not begin with.

    What is written after a generation is part of the next.
    """
    trained = there = idle = wall = 0.0
    first = run.sessions()[0]
    for before, generation in pairwise(run.generations()):
        keys = {p.key for p in run.proposals(generation.number) if p.outcome == "new"}
        own: dict[str, float] = {}
        for (key, _), evaluation in evaluations.items():
            if key in keys:
                own[evaluation.worker] = own.get(evaluation.worker, 0.0) + evaluation.wall_seconds
        session = _session_of(run, generation)
        if session != first and session.started > before.finished:
            continue  # resumed: some of it was trained before, and workers had to start
        seconds = (generation.finished - before.finished).total_seconds()
        wall += seconds
        idle += seconds - max(own.values(), default=0.0)
        trained += math.fsum(own.values())
        there += seconds * session.session.workers
    return (trained / there, idle / wall) if there > 0 else (None, None)


def _session_of(run: Run, generation: Generation) -> PastSession:
    """The session that completed a generation: the last that began before its end."""
    first, *rest = run.sessions()
    # Clocks are set back at times: then no session may seem to be early enough.
    return [first, *(s for s in rest if s.started <= generation.finished)][-1]


def _names(run: Run) -> dict[str, tuple[str, ...]]:
    """Mechanisms are proposed in the first generation, and nowhere else."""
    found: dict[str, tuple[str, ...]] = {}
    for proposal in run.proposals(0):
        if proposal.key is not None and proposal.origin.startswith(NAMED_ORIGIN):
            name = proposal.origin.removeprefix(NAMED_ORIGIN)
            found[proposal.key] = (*found.get(proposal.key, ()), name)
    return found


def _titles(run: Run) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for title in NAMED_MEMBERS:
        # Without an objective to maximise no member is best.
        with contextlib.suppress(RunError):
            digest = find_proposal(run, title).digest
            found[digest] = (*found.get(digest, ()), title)
    return found


def _shared(a: str, b: str) -> int:
    """Length of the beginning that two digests share."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
