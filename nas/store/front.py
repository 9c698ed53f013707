"""Functions on a run's candidates: front, hypervolume, members by name or id, lineage.

Only candidates whose trainings all succeeded can be in a front: the seeds that succeeded would be a
biased selection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from nas.common.errors import RunError
from nas.common.objectives import Objective, as_costs
from nas.common.pareto import knee
from nas.store.files import run_argument
from nas.store.run import scaled_hypervolume

if TYPE_CHECKING:
    from nas.store.records import Candidate, Proposal
    from nas.store.run import Run


class _HasObjectives(Protocol):
    @property
    def objectives(self) -> Mapping[str, float]: ...


T = TypeVar("T", bound=_HasObjectives)
NAMED_MEMBERS: Final = ("best", "knee", "cheapest")
MAX_LISTED: Final = 8


def candidates(run: Run) -> tuple[Candidate, ...]:
    """The mechanisms whose trainings all succeeded, in order of proposal."""
    return tuple(candidate for candidate in run.candidates() if candidate.is_ok)


def front(run: Run) -> tuple[Candidate, ...]:
    """The non-dominated candidates; see ``Run.front``."""
    return run.front()


def front_hypervolume(run: Run, members: Sequence[Candidate]) -> float:
    """Fraction of the box between ideals and references that the members dominate."""
    return scaled_hypervolume(run.setup.objectives, [member.objectives for member in members])


def named_members(objectives: Sequence[Objective], members: Sequence[T]) -> dict[str, T]:
    """The members with the names best, knee and, if an objective is a cost, cheapest.

    ``best`` is best in the first objective, ``cheapest`` in the first cost.
    """
    if not members:
        return {}
    costs = [as_costs(objectives, member.objectives) for member in members]
    named = {"best": members[0], "knee": members[knee(costs)]}
    for column in [i for i, o in enumerate(objectives) if not o.is_metric][:1]:
        row = min(range(len(members)), key=lambda i: (costs[i][column], costs[i]))
        named["cheapest"] = members[row]
    return named


def find_candidate(run: Run, digest: str) -> Candidate | None:
    """The candidate of a proposed genome; None unless all its trainings succeeded."""
    with run.snapshot():
        proposal = run.proposal(digest)
        matches = () if proposal is None else run.candidates([str(proposal.key)])
    return next((candidate for candidate in matches if candidate.is_ok), None)


def find_proposal(run: Run, member: str) -> Proposal:
    """The proposal that ``member`` names: a digest's beginning, or best, knee, cheapest.

    Raises:
        RunError: nothing has that name, or several digests begin so; the message lists them.
    """
    if member in NAMED_MEMBERS:
        return _named(run, member).proposal
    prefix = member.lower()
    if not prefix or set(prefix) - set("0123456789abcdef"):
        raise RunError(
            f"{run.name}/{member}: {member!r} names no member; expected the beginning of a digest "
            f"(0-9, a-f) or one of {', '.join(NAMED_MEMBERS)}."
        )
    with run.snapshot():
        digests = [digest for digest in run.digests() if digest.startswith(prefix)]
        proposal = run.proposal(digests[0]) if len(digests) == 1 else None
    if proposal is not None:
        return proposal
    if not digests:
        raise RunError(
            f"{run.name}/{member}: no genome of this run has a digest that begins so; "
            f"`nas front {run_argument(run.folder)}` lists some."
        )
    more = f" and {len(digests) - MAX_LISTED} more" if len(digests) > MAX_LISTED else ""
    raise RunError(
        f"{run.name}/{member}: {len(digests)} digests begin so: "
        f"{', '.join(digests[:MAX_LISTED])}{more}. Give more of the one you mean."
    )


def lineage(run: Run, digest: str) -> tuple[Proposal, ...]:
    """A proposal and all its ancestors, each once, nearest first."""
    proposals: dict[str, Proposal] = {}
    queue = [digest]
    for name in queue:
        proposal = None if name in proposals else run.proposal(name)
        if proposal is not None:
            proposals[name] = proposal
            queue.extend(proposal.parents)
    return tuple(proposals.values())


def _named(run: Run, name: str) -> Candidate:
    members = named_members(run.setup.objectives, front(run))
    if not members:
        raise RunError(
            f"run {run.name!r} has no candidate yet whose training ended well, so none is {name}; "
            "let it run on, or name a digest."
        )
    if name not in members:
        raise RunError(
            f"run {run.name!r} has no cost among its objectives, so none is {name}; "
            f"expected one of {', '.join(members)}, or a digest."
        )
    return members[name]
