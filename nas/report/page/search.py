"""Statistics of a search: results by operator, failed trainings, and worker failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from nas.common.differences import mean_and_error
from nas.common.objectives import Objective
from nas.common.text import last_line
from nas.evaluation.trial import Incident
from nas.report.run_view import RunView
from nas.store import Candidate

MOST_EXAMPLES: Final = 10


@dataclass(frozen=True)
class Operator:
    """Results of the mechanisms that one operator proposed.

    Attributes:
        trained: number of its mechanisms that were submitted for training.
        failed: number of these whose training failed.
        joined: number of these that were in the front after any generation.
        stayed: number of these in the front after the last generation.
        gain: mean improvement of the first objective over the better parent, by estimates, and
            its standard error; positive is better. None where no parent is known.
        core_seconds: core time of all their trainings.
    """

    name: str
    trained: int
    failed: int
    joined: int
    stayed: int
    gain: tuple[float, float | None] | None
    core_seconds: float


def operators_of(view: RunView) -> list[Operator]:
    """The operators, most trained first."""
    groups: dict[str, list[Candidate]] = {}
    for mechanism in view.trained.values():
        groups.setdefault(mechanism.proposal.operator, []).append(mechanism)
    joined = set(chain.from_iterable(generation.front for generation in view.generations))
    stayed = {member.digest for member in view.members}
    seconds: dict[str, float] = {}
    for row in view.trainings:
        seconds[row.key] = seconds.get(row.key, 0.0) + row.evaluation.core_seconds
    operators = []
    for name, group in groups.items():
        gains = [gain for m in group if (gain := _gain(view, m)) is not None]
        operators.append(
            Operator(
                name=name,
                trained=len(group),
                failed=sum(m.status == "failed" for m in group),
                joined=sum(m.digest in joined for m in group),
                stayed=sum(m.digest in stayed for m in group),
                gain=mean_and_error(gains) if gains else None,
                core_seconds=sum(seconds.get(m.key, 0.0) for m in group),
            )
        )
    return sorted(operators, key=lambda operator: (-operator.trained, operator.name))


def _gain(view: RunView, child: Candidate) -> float | None:
    objective = view.setup.objectives[0]
    value = _cost(child, objective)
    parents = (view.by_digest.get(digest) for digest in child.proposal.parents)
    values = [v for parent in parents if parent and (v := _cost(parent, objective)) is not None]
    return None if value is None or not values else min(values) - value


def _cost(mechanism: Candidate, objective: Objective) -> float | None:
    """The objective of a mechanism; lower is better."""
    values = mechanism.objectives
    return objective.as_cost(values[objective.name]) if values else None


def failures_of(view: RunView) -> list[tuple[str, int, list[tuple[str, str, str]]]]:
    """Failures by reason, most frequent first.

    Returns:
        For each reason its text, the number of trainings, and examples: name, digest, last line of
        the error.
    """
    reasons: dict[str, list[str]] = {}
    errors: dict[str, str] = {}
    for row in view.trainings:
        evaluation = row.evaluation
        if not evaluation.is_ok:
            reasons.setdefault(evaluation.reason or evaluation.status, []).append(row.key)
            errors[row.key] = last_line(evaluation.error)
    return [
        (
            reason.replace("_", " "),
            len(keys),
            [
                (view.called(key), view.trained[key].digest, errors[key])
                for key in keys[:MOST_EXAMPLES]
            ],
        )
        for reason, keys in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    ]


def incidents_of(view: RunView) -> list[dict[str, Any]]:
    """Worker failures by kind, most frequent first."""
    groups: dict[str, list[Incident]] = {}
    for incident in view.incidents:
        groups.setdefault(incident.kind, []).append(incident)
    return [
        _incidents(kind, groups[kind]) for kind in sorted(groups, key=lambda k: -len(groups[k]))
    ]


def _incidents(kind: str, group: Sequence[Incident]) -> dict[str, Any]:
    messages = [*dict.fromkeys(f"{i.worker}: {i.text}".removeprefix(": ") for i in group)]
    return {
        "kind": kind,
        "count": len(group),
        "restarted": sum(incident.key is not None for incident in group),
        "messages": messages[:MOST_EXAMPLES],
        "more": max(0, len(messages) - MOST_EXAMPLES),
    }
