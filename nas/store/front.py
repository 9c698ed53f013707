"""What follows from a run's records: its candidates, front, hypervolume, members by name, lineage.

Only a candidate whose repeats have all ended well can be in a front: one lucky seed of several, or
one that diverged in part, is no result yet.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final

from nas.errors import RunError
from nas.pareto import hypervolume, knee, non_dominated, normalise
from nas.store.records import Candidate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.evaluation.record import Objective
    from nas.store.records import Proposal
    from nas.store.run import Run

NAMED_MEMBERS: Final = ("best", "knee", "cheapest")
MAX_LISTED: Final = 8


def summarise(
    repeats: Sequence[Mapping[str, float]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and standard error of each objective over the repeats of one candidate.

    The standard error is the sample's deviation (n - 1) over the root of n; with one repeat there
    is none.
    """
    columns = {name: [values[name] for values in repeats] for name in repeats[0]}
    means = {name: math.fsum(column) / len(column) for name, column in columns.items()}
    if len(repeats) == 1:
        return means, {}
    root = math.sqrt(len(repeats))
    return means, {name: statistics.stdev(column) / root for name, column in columns.items()}


def as_costs(objectives: Sequence[Objective], values: Mapping[str, float]) -> tuple[float, ...]:
    """The values in the objectives' order, negated where more is better: lower is better."""
    return tuple(-values[o.name] if o.direction == "max" else values[o.name] for o in objectives)


def scaled_hypervolume(
    objectives: Sequence[Objective],
    rows: Sequence[Mapping[str, float]],
    ideal_point: Sequence[float],
    reference_point: Sequence[float],
) -> float:
    """Share of the box between ideal and reference point that ``rows`` dominate, 0 to 1."""
    names = [objective.name for objective in objectives]
    ideal, reference = (
        as_costs(objectives, dict(zip(names, point, strict=True)))
        for point in (ideal_point, reference_point)
    )
    scaled = normalise([as_costs(objectives, row) for row in rows], ideal, reference)
    return hypervolume(scaled, (1.0,) * len(names))


def candidates(run: Run) -> tuple[Candidate, ...]:
    """Every mechanism whose repeats all ended well, in the order in which they were proposed."""
    with run.snapshot():
        found = [_candidate(run, key, repeats) for key, repeats in _complete(run).items()]
    return tuple(sorted(found, key=_order))


def front(run: Run) -> tuple[Candidate, ...]:
    """The non-dominated candidates under the run's objectives, best first objective first."""
    with run.snapshot():
        objectives, complete = run.setup.objectives, _complete(run)
        keys = list(complete)
        means = [summarise(complete[key])[0] for key in keys]
        chosen = non_dominated([as_costs(objectives, values) for values in means])
        members = [_candidate(run, keys[i], complete[keys[i]]) for i in chosen]
    members.sort(key=lambda member: (as_costs(objectives, member.objectives), _order(member)))
    return tuple(members)


def front_hypervolume(run: Run, members: Sequence[Candidate]) -> float:
    """``scaled_hypervolume`` of a run's front between the run's recorded points."""
    setup = run.setup
    rows = [member.objectives for member in members]
    return scaled_hypervolume(setup.objectives, rows, setup.ideal_point, setup.reference_point)


def find_candidate(run: Run, digest: str) -> Candidate | None:
    """What was measured of a proposal, or None unless all its repeats ended well."""
    proposal = run.proposal_by_digest(digest)
    if proposal is None or proposal.key is None:
        return None
    repeats = _complete(run).get(proposal.key)
    return None if repeats is None else _candidate(run, proposal.key, repeats)


def find_proposal(run: Run, member: str) -> Proposal:
    """The proposal that ``member`` names: a digest's beginning, or best, knee, cheapest.

    Raises:
        RunError: nothing has that name, or several digests begin so; they are listed.
    """
    if member in NAMED_MEMBERS:
        return _named(run, member).proposal
    prefix = member.lower()
    if not prefix or set(prefix) - set("0123456789abcdef"):
        raise RunError(
            f"{run.name}/{member}: {member!r} names no member; expected the beginning of a digest "
            f"(0-9, a-f) or one of {', '.join(NAMED_MEMBERS)}."
        )
    digests = run.digests(prefix)
    if len(digests) != 1:
        raise _none_or_many(run, member, digests)
    proposal = run.proposal_by_digest(digests[0])
    assert proposal is not None
    return proposal


def lineage(run: Run, digest: str) -> tuple[Proposal, ...]:
    """A proposal and all its ancestors, each once, nearest first."""
    found: dict[str, Proposal] = {}
    waiting = [digest]
    for name in waiting:
        proposal = None if name in found else run.proposal_by_digest(name)
        if proposal is not None:
            found[name] = proposal
            waiting.extend(proposal.parents)
    return tuple(found.values())


def _named(run: Run, name: str) -> Candidate:
    members, objectives = front(run), run.setup.objectives
    if not members:
        raise RunError(
            f"run {run.name!r} has no candidate yet whose training ended well, so none is {name}; "
            "let it run on, or name a digest."
        )
    costs = [as_costs(objectives, member.objectives) for member in members]
    if name == "knee":
        return members[knee(costs)]
    direction = "max" if name == "best" else "min"
    columns = [i for i, o in enumerate(objectives) if o.direction == direction]
    if not columns:
        what = "to maximise" if name == "best" else "to minimise"
        raise RunError(f"run {run.name!r} has no objective {what}, so no member is {name}.")
    i = min(range(len(members)), key=lambda i: (costs[i][columns[0]], costs[i]))
    return members[i]


def _none_or_many(run: Run, member: str, digests: Sequence[str]) -> RunError:
    if not digests:
        return RunError(
            f"{run.name}/{member}: no genome of this run has a digest that begins so; "
            f"`nas front {run.name}` lists some."
        )
    more = f" and {len(digests) - MAX_LISTED} more" if len(digests) > MAX_LISTED else ""
    return RunError(
        f"{run.name}/{member}: {len(digests)} digests begin so: "
        f"{', '.join(digests[:MAX_LISTED])}{more}. Give more of the one you mean."
    )


def _complete(run: Run) -> dict[str, list[dict[str, float]]]:
    """Objectives of each repeat, by key, where all repeats are there and ended well."""
    found: dict[str, list[dict[str, float]]] = {}
    unfit: set[str] = set()
    for key, is_ok, objectives in run.outcomes():
        if is_ok:
            found.setdefault(key, []).append(objectives)
        else:
            unfit.add(key)
    wanted = run.setup.repeats
    return {k: rows for k, rows in found.items() if k not in unfit and len(rows) >= wanted}


def _candidate(run: Run, key: str, repeats: Sequence[Mapping[str, float]]) -> Candidate:
    proposal = run.proposal_by_key(key)
    if proposal is None:
        raise RunError(f"{run.folder}: holds an evaluation of {key} that nobody proposed.")
    means, errors = summarise(repeats)
    return Candidate(proposal, means, errors, len(repeats))


def _order(candidate: Candidate) -> tuple[int, int]:
    return candidate.proposal.generation, candidate.proposal.position
