"""What a table or a picture of a run needs, read from its record at one moment.

Which mechanisms of the run are named ones is taken from the record as well (the search seeds them
and writes down their names): telling it from the genomes would need torch.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

from nas.common.config import parse_yaml
from nas.common.differences import mean_and_error
from nas.common.objectives import as_costs
from nas.common.pareto import dominates
from nas.report.text import plural
from nas.report.units import FRACTION, amount, duration, header, percent
from nas.store import candidates_of, named_members
from nas.store.results import front_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.store import Candidate, Confirmation, Run, RunSetup, RunSummary

STANDARD: Final = "mha"
ID_LENGTH: Final = 8
# What answers call the parts of a confirmation.
FRESH: Final = {"search": "fresh", "long": "long", "test": "test"}


@dataclass(frozen=True)
class RunFacts:
    """A run at one moment.

    Attributes:
        setup, summary: what it was begun with and how it stands.
        candidates: all whose training ended well, in order of their proposal.
        members: the front among them, best first objective first.
        titles: best, knee and cheapest by digest; a member may be several.
        names: the names of mechanisms by resolved digest; at small sizes one may have several.
        hypervolume: of the members, a share of the recorded box.
        id_length: characters of a digest that tell all of the run's apart, at least 8.
        fresh: what confirmed it, `nas confirm`: under "fresh", "long" or "test", by resolved
            digest, the first metric of each training with a fresh seed.
        failures: failed candidates by reason.
        core_seconds: over all trainings.
        wall_seconds: over all sessions.
        busy: share of the workers' time that was training; None while a session is open.
        hardware: what trained, each kind once; several where a run was resumed elsewhere.
    """

    setup: RunSetup
    summary: RunSummary
    candidates: tuple[Candidate, ...]
    members: tuple[Candidate, ...]
    titles: Mapping[str, tuple[str, ...]]
    names: Mapping[str, tuple[str, ...]]
    hypervolume: float
    id_length: int
    fresh: Mapping[str, Mapping[str, Sequence[float]]]
    failures: Mapping[str, int]
    core_seconds: float
    wall_seconds: float
    busy: float | None
    hardware: tuple[str, ...]

    @cached_property
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

    def confirmed(self, candidate: Candidate) -> dict[str, dict[str, Any]]:
        """What trainings with fresh seeds gave, for each part that has any."""
        key = str(candidate.proposal.key)
        return {title: spread(own[key]) for title, own in self.fresh.items() if key in own}

    def beaten_by(self, member: Candidate) -> dict[str, float]:
        """The named mechanisms that a candidate dominates by estimates, and how likely it does."""
        costs = self.costs(member)
        return {
            name: self._p_better(member, other)
            for _, other in self.named
            if dominates(costs, self.costs(other))
            for name in self.names_of(other)
        }

    def costs(self, candidate: Candidate) -> tuple[float, ...]:
        """The run's objectives of a candidate, lower is better."""
        return as_costs(self.setup.objectives, candidate.objectives)

    def short(self, candidate: Candidate) -> str:
        """The beginning of a candidate's digest that names it alone."""
        return candidate.digest[: self.id_length]

    def _p_better(self, member: Candidate, other: Candidate) -> float:
        """How likely one that dominates another by estimates is truly better in its metrics.

        Errors count as independent and normal; of a metric without one nothing is known.
        """
        found = 1.0
        for objective in (o for o in self.setup.objectives if o.is_metric):
            name = objective.name
            lead = objective.as_cost(other.objectives[name] - member.objectives[name])
            error = math.hypot(*(c.errors.get(name, math.inf) for c in (member, other)))
            found *= NormalDist().cdf(lead / error) if error else 1.0
        return found


def gather(run: Run) -> RunFacts:
    """Read the facts of a run."""
    with run.snapshot():
        setup, results = run.setup, run.results()
        found, summary = tuple(candidates_of(run, results)), run.summary()
        by_key = {candidate.proposal.key: candidate for candidate in found}
        members = tuple(by_key[one.key] for one in front_of(setup.objectives, results))
        trials = run.read_rows("trials", tuple)
        failed = {row["key"]: row["reason"] for row in trials if row["status"] == "failed"}
        trained = math.fsum(row["wall_seconds"] for row in trials)
        wall, there = session_seconds(run)
        return RunFacts(
            setup=setup,
            summary=summary,
            candidates=found,
            members=members,
            titles=_titles(setup, members),
            names=_names(run),
            hypervolume=summary.hypervolume or 0.0,
            id_length=id_length(run.digests()),
            fresh=_fresh(setup, run.confirmations()),
            failures=dict(Counter(str(reason) for reason in failed.values())),
            core_seconds=math.fsum(row["core_seconds"] for row in trials),
            wall_seconds=wall,
            busy=min(1.0, trained / there) if there else None,
            hardware=tuple(dict.fromkeys(row["hardware"] for row in trials if row["hardware"])),
        )


def p_cell(candidate: Candidate) -> str:
    """How likely nothing that was trained dominates it; empty where nothing is estimated."""
    return f"{candidate.p:.2f}" if candidate.p is not None and candidate.errors else ""


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Of trainings with fresh seeds: mean, standard error, and the values themselves."""
    mean, error = mean_and_error(values) if values else (None, None)
    return {"mean": mean, "error": error, "values": list(values)}


def id_length(digests: Sequence[str]) -> int:
    """How many characters tell digests apart; at least 8."""
    length = ID_LENGTH
    while len({digest[:length] for digest in digests}) < len({*digests}):
        length += 1
    return length


def task_and_data(setup: RunSetup) -> str:
    """The task's name and, from the run's frozen copy, what it was trained on."""
    copy = parse_yaml(setup.task.text, setup.task.name)
    data = copy.get("data") if isinstance(copy, dict) else None
    if not data:
        return setup.task.name
    # A folder's whole path may say more than its owner would.
    _, _, path = str(data).partition(":")
    is_path = path.startswith(("/", "~"))
    return f"{setup.task.name} on {f'folder {PurePath(path).name}' if is_path else data}"


def headline(facts: RunFacts) -> str:
    """Which run this is and how it stands, in one line."""
    summary = facts.summary
    done = f"{summary.generations_done} of {plural(summary.generations, 'generation')}"
    return run_line(summary.name, facts.setup, f"{summary.status}, {done}")


def run_line(name: str, setup: RunSetup, state: str) -> str:
    """A run's name, what it searches and how, and a word on its state."""
    what = f"run {name} · space {setup.space.name} · task {task_and_data(setup)}"
    return f"{what} · seed {setup.seed} · {setup.algorithm} · {state}"


def tally(facts: RunFacts) -> list[tuple[str, str]]:
    """What became of all proposals, how long it took and what it won: names and values."""
    counts = facts.summary.counts
    reasons = ", ".join(f"{n} {why.replace('_', ' ')}" for why, n in facts.failures.items())
    wall, core = duration(facts.wall_seconds), duration(facts.core_seconds)
    busy = "" if facts.busy is None else f"; workers busy {percent(facts.busy)} %"
    reference = ", ".join(
        f"{header(o.name)} {amount(o.reference, o.unit)}{' %' if o.unit == FRACTION else ''}"
        for o in facts.setup.objectives
    )
    return [
        (
            "proposed",
            f"{counts.proposed}: {counts.evaluated} evaluated, {counts.repeated} repeated, "
            f"{counts.replayed} replayed, {counts.rejected} rejected",
        ),
        ("failed", f"{counts.failed}" + (f" ({reasons})" if reasons else "")),
        *([("stopped at a gate", str(counts.stopped))] if counts.stopped else []),
        ("time", f"{wall}; {core} of core time{busy}"),
        ("hypervolume", f"{facts.hypervolume:.4f} (reference: {reference})"),
    ]


def session_seconds(run: Run) -> tuple[float, float]:
    """How long all sessions took, and the same times their workers, or 0 while one is open.

    A session that was killed ended with the last generation that was complete before the next.
    """
    finished = [generation.finished for generation in run.generations()]
    wall = there = 0.0
    sessions, limit, is_closed = run.sessions(), None, True
    for past in reversed(sessions):
        is_closed = is_closed and past.ended is not None
        until = (f for f in finished if f > past.started and (limit is None or f <= limit))
        end = past.ended or max(until, default=past.started)
        seconds = max(0.0, (end - past.started).total_seconds())
        wall += seconds
        there += seconds * past.session.workers
        limit = past.started
    return wall, there if is_closed else 0.0


def _fresh(setup: RunSetup, found: Sequence[Confirmation]) -> dict[str, dict[str, list[float]]]:
    """By part and mechanism; of several tasks of one part, each has its name in the title."""
    metric = next((o.name for o in setup.objectives if o.is_metric), None)
    tasks = {part: {one.task for one in found if one.part == part} for part in FRESH}
    fresh: dict[str, dict[str, list[float]]] = {}
    for one in sorted(found, key=lambda one: [*FRESH].index(one.part)):
        if one.evaluation.is_ok and metric is not None:
            is_one = len(tasks[one.part]) == 1
            title = FRESH[one.part] if is_one else f"{FRESH[one.part]} {one.task_name}"
            values = fresh.setdefault(title, {}).setdefault(one.key, [])
            values.append(one.evaluation.metrics[metric])
    return fresh


def _names(run: Run) -> dict[str, tuple[str, ...]]:
    """The names that the search wrote down when it proposed the mechanisms."""
    found: dict[str, tuple[str, ...]] = {}
    for row in run.read_rows("proposals", tuple):
        key = row["key"]
        if key and row["name"] and row["verdict"] != "repeated":
            found[key] = (*found.get(key, ()), row["name"])
    return found


def _titles(setup: RunSetup, members: Sequence[Candidate]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for title, member in named_members(setup.objectives, members).items():
        found[member.digest] = (*found.get(member.digest, ()), title)
    return found
