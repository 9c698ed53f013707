"""Find mechanisms of a run by name or by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from nas.common.errors import RunError
from nas.common.objectives import Objective, as_costs
from nas.common.pareto import knee
from nas.store.files import run_argument

if TYPE_CHECKING:
    from nas.store.records import Candidate, Proposal
    from nas.store.run import Run


NAMED_MEMBERS: Final = ("best", "knee", "cheapest")
MAX_LISTED: Final = 8


def named_members(
    objectives: Sequence[Objective], members: Sequence[Candidate]
) -> dict[str, Candidate]:
    """Return the named members of a front, which is sorted from best to worst.

    "best" is the best member in the first objective, "knee" that of ``nas.common.pareto.knee``, and
    "cheapest" that with the lowest first cost; it is absent if no objective is a cost.
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
    """Return what a run recorded about a genome; None if a training of it failed or is missing.

    Of a duplicate, the records are those of the mechanism that it duplicates.
    """
    with run.snapshot():
        proposal = run.proposal(digest)
        matches = () if proposal is None else run.candidates([str(proposal.key)])
    return next((candidate for candidate in matches if candidate.is_ok), None)


def find_proposal(run: Run, member: str) -> Proposal:
    """Return the proposal of a mechanism.

    Args:
        member: the name of a find, the beginning of a digest, or "best", "knee" or "cheapest"
            (``named_members``).

    Raises:
        RunError: no proposal or several proposals match.
    """
    if member in NAMED_MEMBERS:
        return _find_named(run, member).proposal
    prefix = member.lower().rpartition("-")[2]  # of the name of a find, or of a digest
    if not prefix or set(prefix) - set("0123456789abcdef"):
        raise RunError(
            f"{run.name}/{member}: {member!r} names no member; expected the beginning of a digest "
            f"(0-9, a-f) or one of {', '.join(NAMED_MEMBERS)}."
        )
    digests = [digest for digest in run.digests() if digest.startswith(prefix)]
    if not digests:
        raise RunError(
            f"{run.name}/{member}: no genome of this run has a digest that begins so; "
            f"`nas front {run_argument(run.folder)}` lists some."
        )
    proposal = run.proposal(digests[0])
    if len(digests) == 1 and proposal is not None:
        return proposal
    more = f" and {len(digests) - MAX_LISTED} more" if len(digests) > MAX_LISTED else ""
    raise RunError(
        f"{run.name}/{member}: {len(digests)} digests begin so: "
        f"{', '.join(digests[:MAX_LISTED])}{more}. Give more of the one you mean."
    )


def _find_named(run: Run, name: str) -> Candidate:
    members = named_members(run.setup.objectives, run.front())
    if name not in members:
        raise RunError(
            f"run {run.name!r} has no {name} member: "
            + ("no objective is a cost." if members else "no training within its limits succeeded.")
        )
    return members[name]
