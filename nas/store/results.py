"""What follows from recorded trainings: a result a mechanism, and how the run stood after each
generation.

Pure functions of what was read. A candidate has objectives only when all of its repeats have ended,
and ended well: one lucky seed of several is no result.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from nas.objectives import as_costs
from nas.pareto import hypervolume, non_dominated, normalise
from nas.store import rows
from nas.store.records import Counts, Generation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from nas.objectives import Objective
    from nas.store.records import RunSetup


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a new proposal.

    Attributes:
        number, digest, key: of the proposal.
        ended: how many of its trainings have ended.
        has_failed: whether one of them failed.
        is_done: whether all have ended.
        objectives: means of metrics over the repeats, and costs; None unless all ended well.
        standard_errors: of the means; empty with a single repeat.
        proposed, finished: when it and its last training so far were recorded.
    """

    number: int
    digest: str
    key: str
    ended: int
    has_failed: bool
    is_done: bool
    objectives: Mapping[str, float] | None
    standard_errors: Mapping[str, float]
    proposed: datetime
    finished: datetime


def result_of(setup: RunSetup, trained: Sequence[rows.Row]) -> Result:
    """Sum up a candidate: a row a training, with columns of its proposal; one row if none ended.

    Raises:
        ValueError: it lacks one of the run's objectives.
    """
    first, ended = trained[0], [row for row in trained if row["status"] is not None]
    is_done = len(ended) >= setup.repeats
    objectives: dict[str, float] | None = None
    errors: dict[str, float] = {}
    if is_done and all(row["status"] == "ok" for row in ended):
        costs = rows.numbers(first["costs"])
        means, errors = summarise([rows.numbers(row["metrics"]) for row in ended])
        objectives = {**costs, **means}
        errors |= dict.fromkeys(costs, 0.0) if setup.repeats > 1 else {}
        if lacking := {objective.name for objective in setup.objectives} - objectives.keys():
            raise ValueError(f"{first['digest']} lacks {sorted(lacking)}")
    proposed = rows.to_datetime(first["proposed"])
    return Result(
        number=first["number"],
        digest=first["digest"],
        key=first["key"],
        ended=len(ended),
        has_failed=any(row["status"] == "failed" for row in ended),
        is_done=is_done,
        objectives=objectives,
        standard_errors=errors,
        proposed=proposed,
        finished=max([proposed, *(rows.to_datetime(row["recorded"]) for row in ended)]),
    )


def summarise(
    repeats: Sequence[Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and standard error of each metric over the repeats of one candidate.

    The standard error is the sample's deviation (n - 1) over the root of n; with one repeat there
    is none.
    """
    columns = {name: [values[name] for values in repeats] for name in repeats[0]}
    means = {name: math.fsum(column) / len(column) for name, column in columns.items()}
    if len(repeats) == 1:
        return means, {}
    root = math.sqrt(len(repeats))
    return means, {name: statistics.stdev(column) / root for name, column in columns.items()}


def scaled_hypervolume(
    objectives: Sequence[Objective], members: Sequence[Mapping[str, float]]
) -> float:
    """Share of the box between the objectives' ideals and references that is dominated, 0 to 1."""
    ideal = [o.as_cost(o.ideal) for o in objectives]
    reference = [o.as_cost(o.reference) for o in objectives]
    scaled = normalise([as_costs(objectives, row) for row in members], ideal, reference)
    return hypervolume(scaled, (1.0,) * len(objectives))


def front_of(objectives: Sequence[Objective], results: Iterable[Result]) -> list[Result]:
    """The non-dominated results, best first objective first, then in order of proposal."""
    known = [(as_costs(objectives, r.objectives), r) for r in results if r.objectives is not None]
    members = [known[i] for i in non_dominated([costs for costs, _ in known])]
    members.sort(key=lambda member: (member[0], member[1].number))
    return [found for _, found in members]


def generations_of(
    setup: RunSetup,
    results: Sequence[Result],
    proposed: Mapping[int, Counts],
    *,
    is_exhausted: bool,
) -> tuple[Generation, ...]:
    """How the run stood after each complete generation: results of it and of all before it.

    Args:
        results: of all new proposals, in order.
        proposed: by generation, counts without what was evaluated.
        is_exhausted: the last generation is complete although it is not full.
    """
    found: list[Generation] = []
    front: list[Result] = []
    for number, group in groupby(results, key=lambda r: r.number // setup.population):
        members = list(group)
        is_full = len(members) == setup.population or is_exhausted
        if number != len(found) or not is_full or not all(r.is_done for r in members):
            break
        front = front_of(setup.objectives, [*front, *members])
        values = [member.objectives for member in front if member.objectives is not None]
        num_failed = sum(member.has_failed for member in members)
        generation = Generation(
            number=number,
            started=members[0].proposed,
            finished=max(member.finished for member in members),
            hypervolume=scaled_hypervolume(setup.objectives, values),
            best=values[0][setup.objectives[0].name] if values else None,
            counts=proposed[number] + Counts(evaluated=len(members), failed=num_failed),
            front=tuple(member.digest for member in front),
        )
        found.append(generation)
    return tuple(found)
