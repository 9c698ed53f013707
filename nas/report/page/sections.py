"""Data of the sections of a page on explanations, operators, and failures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from nas.common.differences import mean_and_error
from nas.common.errors import RunError
from nas.common.objectives import Objective
from nas.common.text import last_line, plural
from nas.evaluation.trial import Incident
from nas.report.explanation import ROWS, TITLES
from nas.report.page.figures import Scale
from nas.report.page.rendering import gain
from nas.report.run_view import RunView
from nas.report.units import FRACTION, header, points, quantity, signed
from nas.store import Candidate

if TYPE_CHECKING:
    Answer = Mapping[str, Any]

WIDTH, HEIGHT = 160.0, 24.0
ORDER: Final = ("needed", "harmful", "harmless", "unresolved")
MOST_EXAMPLES: Final = 10


def explanations(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return the data of a section for each recorded explanation of the runs.

    Raises:
        RunError: a recorded explanation is damaged.
    """
    return [
        _read("explain", _explanation, view, answer) for view in views for answer in view.explained
    ]


def _read(
    command: str, make: Callable[[RunView, Answer], dict[str, Any]], view: RunView, answer: Answer
) -> dict[str, Any]:
    try:
        return make(view, answer)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RunError(
            f"run {view.label}: its record holds an answer of `nas {command}` that cannot be "
            "read; run the command again."
        ) from error


def _explanation(view: RunView, answer: Answer) -> dict[str, Any]:
    digest, metric = answer["id"], answer["metric"]
    unit, words = metric["unit"], metric["name"].replace("_", " ")
    name = _name(view, digest) or digest[:8]
    reached = "it could not be trained"
    if answer["mean"] is not None:
        reached = f"{words} {quantity(answer['mean'], unit, answer['error'])}"
    rows = [row for part in TITLES for row in answer[part]]
    ends = [d[end] for row in rows if (d := row["difference"]) for end in ("low", "high")]
    x = Scale.over([*ends, 0.0], 6, WIDTH - 6)
    return {
        "run": view.name,
        "digest": digest,
        "name": name,
        "about": f"{reached} under {answer['task']}, {plural(len(answer['values']), 'fresh seed')}",
        "summary": _summary(answer["edits"], unit),
        "tables": [
            (title.format(source=name), *_table(part, answer))
            for part, title in TITLES.items()
            if answer[part]
        ],
        "x": x,
        "width": WIDTH,
        "height": HEIGHT,
        "band": [min(max(x(sign * answer["margin"]), 0.0), WIDTH) for sign in (-1, 1)],
        "what": f"points of {words}" if unit == FRACTION else words,
        "margin": points(answer["margin"], None, unit).lstrip("+"),
    }


def _name(view: RunView, digest: str) -> str:
    """Return the name or shortened digest of a mechanism; empty if the run did not train it."""
    candidate = view.by_digest.get(digest)
    return view.called(candidate.key) if candidate and candidate.key in view.trained else ""


def _summary(edits: Sequence[Answer], unit: str) -> str:
    """Return a text: the number of edits with each verdict, and the edit with the largest loss."""
    counts = Counter(row["verdict"] for row in edits)
    verdicts = ", ".join(f"{counts[word]} {word}" for word in ORDER if counts[word])
    summary = f"Of {plural(len(edits), 'part')}: {verdicts}."
    needed = [row for row in edits if row["verdict"] == "needed"]
    if not needed:
        return summary
    most = max(needed, key=lambda row: abs(row["difference"]["mean"]))
    return f"{summary} The largest loss: {most['words']}, {_gain(most, unit)}."


def _table(part: str, answer: Answer) -> tuple[list[str], list[dict[str, Any]]]:
    """Return headers and rows of a table of an explanation.

    Edits are sorted by their difference in the metric, largest loss first.

    Args:
        part: name of the table: "edits" or "controls".
        answer: the recorded explanation.
    """
    rows, unit = answer[part], answer["metric"]["unit"]
    if part == "edits":
        sign = 1 if answer["metric"]["direction"] == "max" else -1
        rows = sorted(
            rows, key=lambda row: sign * row["difference"]["mean"] if row["difference"] else 0.0
        )
    costs = [name for name in rows[0]["added_costs"] if any(r["added_costs"][name] for r in rows)]
    heads = [ROWS[part], "", "difference", "verdict", *map(header, costs), "formula"]
    return heads, [_line(row, costs, unit) for row in rows]


def _line(row: Answer, costs: Sequence[str], unit: str) -> dict[str, Any]:
    failed = "; ".join(f"{count} failed, {reason}" for reason, count in row["failed"].items())
    difference = row["difference"]
    ends = difference and [gain(difference[end], None, unit) for end in ("low", "high")]
    numbers = difference and {name: float(difference[name]) for name in ("mean", "low", "high")}
    return {
        "words": f"{row['words']} ({failed})" if failed else str(row["words"]),
        "difference": numbers,
        "interval": ends and " to ".join(ends),
        "gain": _gain(row, unit),
        "verdict": str(row["verdict"]),
        "costs": [signed(row["added_costs"][cost]).replace("-", "−") for cost in costs],
        "formula": str(row["formula"]),
    }


def _gain(row: Answer, unit: str) -> str:
    difference = row["difference"]
    return gain(difference["mean"], difference["error"], unit) if difference else "–"


@dataclass(frozen=True)
class Operator:
    """Results of the mechanisms that one operator, such as a mutation, proposed in the search.

    Attributes:
        trained: number of the operator's mechanisms that were submitted for training.
        failed: number of these mechanisms whose training failed.
        joined: number of these mechanisms that were in the Pareto front after any generation.
        stayed: number of these mechanisms that are in the front after the last generation.
        gain: mean improvement of the estimated first objective over the better parent, and its
            standard error; positive is better. None if no mechanism has a trained parent.
        core_seconds: processor time of all trainings of these mechanisms, in seconds.
    """

    name: str
    trained: int
    failed: int
    joined: int
    stayed: int
    gain: tuple[float, float | None] | None
    core_seconds: float


def operators_of(view: RunView) -> list[Operator]:
    """Return the results of each operator of a search, most trained mechanisms first."""
    groups: defaultdict[str, list[Candidate]] = defaultdict(list)
    for mechanism in view.trained.values():
        groups[mechanism.proposal.operator].append(mechanism)
    joined = set(chain.from_iterable(generation.front for generation in view.generations))
    stayed = {member.digest for member in view.members}
    operators = []
    for name, group in groups.items():
        gains = [gain for m in group if (gain := _improvement(view, m)) is not None]
        operators.append(
            Operator(
                name=name,
                trained=len(group),
                failed=sum(m.status == "failed" for m in group),
                joined=sum(m.digest in joined for m in group),
                stayed=sum(m.digest in stayed for m in group),
                gain=mean_and_error(gains) if gains else None,
                core_seconds=sum(
                    t.evaluation.core_seconds
                    for m in group
                    for t in (*m.trainings, *(m.target or ()))
                ),
            )
        )
    return sorted(operators, key=lambda operator: (-operator.trained, operator.name))


def _improvement(view: RunView, child: Candidate) -> float | None:
    """Return the child's improvement of the first objective over its better parent.

    Positive is better. None if the child or all its parents have no successful trainings.
    """
    objective = view.setup.objectives[0]
    value = _as_cost(child, objective)
    parents = [view.by_digest[d] for d in child.proposal.parents if d in view.by_digest]
    values = [cost for parent in parents if (cost := _as_cost(parent, objective)) is not None]
    return None if value is None or not values else min(values) - value


def _as_cost(mechanism: Candidate, objective: Objective) -> float | None:
    values = mechanism.objectives
    return objective.as_cost(values[objective.name]) if values else None


def failures_of(view: RunView) -> list[tuple[str, int, list[tuple[str, str, str]]]]:
    """Return the failed and stopped trainings by reason, most frequent reason first.

    Returns:
        For each reason its text, the number of trainings, and examples. An example is the name of a
        mechanism, its digest, and the last line of the error.
    """
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    errors: dict[str, str] = {}
    for row in view.trainings:
        evaluation = row.evaluation
        if not evaluation.is_ok:
            reasons[evaluation.reason or evaluation.status].append(row.key)
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
    """Return the count and the messages of each kind of worker failure, most frequent first."""
    groups: defaultdict[str, list[Incident]] = defaultdict(list)
    for incident in view.incidents:
        groups[incident.kind].append(incident)
    entries = []
    for kind, group in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        messages = [*dict.fromkeys(f"{i.worker}: {i.text}".removeprefix(": ") for i in group)]
        entries.append(
            {
                "kind": kind,
                "count": len(group),
                "restarted": sum(incident.key is not None for incident in group),
                "messages": messages[:MOST_EXAMPLES],
                "more": max(0, len(messages) - MOST_EXAMPLES),
            }
        )
    return entries
