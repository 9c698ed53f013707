"""What follows from recorded trainings: a result a mechanism, and how the run stood after each
generation.

Pure functions of what was read. A candidate has objectives only when all of its repeats have ended,
and ended well: one lucky seed of several is no result.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from nas.evaluation.trial import mean_and_error
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
        statuses: of its trainings that have ended.
        objectives: means of metrics over the repeats, and costs; None unless all ended well.
        standard_errors: of the means; empty with a single repeat.
        recorded: when its last training was, once all have ended; else None.
    """

    number: int
    digest: str
    key: str
    statuses: tuple[str, ...]
    objectives: Mapping[str, float] | None
    standard_errors: Mapping[str, float]
    recorded: datetime | None


def result_of(setup: RunSetup, trained: Sequence[rows.Row]) -> Result:
    """Sum up a candidate: a row a training, with columns of its proposal; one row if none ended.

    Raises:
        ValueError: it lacks one of the run's objectives.
    """
    first, ended = trained[0], [row for row in trained if row["status"] is not None]
    statuses = tuple(row["status"] for row in ended)
    is_done = len(ended) >= setup.repeats
    objectives: dict[str, float] | None = None
    errors: dict[str, float] = {}
    if is_done and set(statuses) == {"ok"}:
        costs = rows.numbers(first["costs"])
        means, errors = summarise([rows.numbers(row["metrics"]) for row in ended])
        objectives = {**costs, **means}
        errors |= dict.fromkeys(costs, 0.0) if setup.repeats > 1 else {}
        if lacking := {objective.name for objective in setup.objectives} - objectives.keys():
            raise ValueError(f"{first['digest']} lacks {sorted(lacking)}")
    recorded = max(rows.to_datetime(row["recorded"]) for row in ended) if is_done else None
    number, digest, key = first["number"], first["digest"], first["key"]
    return Result(number, digest, key, statuses, objectives, errors, recorded)


def summarise(
    repeats: Sequence[Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and standard error of each metric over a candidate's repeats; one alone has no error."""
    found = {name: mean_and_error([values[name] for values in repeats]) for name in repeats[0]}
    means = {name: mean for name, (mean, _) in found.items()}
    return means, {name: error for name, (_, error) in found.items() if error is not None}


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
        ends = [r.recorded for r in members if r.recorded is not None]
        if number != len(found) or not is_full or len(ends) < len(members):
            break
        front = front_of(setup.objectives, [*front, *members])
        values = [member.objectives for member in front if member.objectives is not None]
        num_failed = sum("failed" in member.statuses for member in members)
        generation = Generation(
            number=number,
            finished=max(ends),
            hypervolume=scaled_hypervolume(setup.objectives, values),
            best=values[0][setup.objectives[0].name] if values else None,
            counts=proposed[number] + Counts(evaluated=len(members), failed=num_failed),
            front=tuple(member.digest for member in front),
        )
        found.append(generation)
    return tuple(found)
