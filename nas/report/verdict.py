"""The verdict on a run: a headline, four sentences, and the important numbers.

The verdict is about the mechanism with the best estimate among those that ``nas confirm`` trained
with fresh seeds; one within the limits of the objectives precedes all others. It is chosen before
these trainings, so its mean over fresh seeds has no selection bias. Controls are never chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

from nas.common.differences import Difference, Side
from nas.common.objectives import Objective, beyond_limits
from nas.common.text import plural
from nas.costs import cost_noun
from nas.report.front import tally
from nas.report.run_view import FRESH, RunView, outside_text
from nas.report.units import FRACTION, minus, multiple, points, points_between, quantity
from nas.store import Candidate

SEARCHED: Final = FRESH["search"]


class Figure(NamedTuple):
    """A number beside a verdict; ``kind`` is "lead", "fresh", "estimate", "score" or "cost"."""

    value: str
    label: str
    kind: str


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run: a headline, sentences that explain it, and the important numbers."""

    headline: str
    sentences: tuple[str, ...]
    figures: tuple[Figure, ...]


def verdict_of(view: RunView) -> Verdict:
    """Return the verdict on a run; it need not have confirmed mechanisms."""
    if not view.members:
        headline = "No training has ended well yet, so there is no front."
        if view.candidates:
            headline = "No trained mechanism is within the limits, so there is no front."
        return Verdict(headline, (_effort(view),), ())
    metric, fresh = view.metric, view.fresh.get(SEARCHED, {})
    finds = [c for c in view.candidates if c.key in fresh.keys() - view.controls]
    if metric is not None and finds:
        return _confirmed(view, metric, finds)
    return _unconfirmed(view)


def _unconfirmed(view: RunView) -> Verdict:
    objective = view.setup.objectives[0]
    best = next((m for m in view.members if m.key not in view.controls), None)
    if best is None:
        headline = "No mechanism but the controls is in the front."
        return Verdict(headline, (_effort(view),), ())
    kind = ("estimate" if best.is_estimated else "score") if objective.is_metric else "cost"

    def value(candidate: Candidate) -> str:
        error = candidate.errors.get(objective.name)
        return _value(candidate.objectives[objective.name], error, objective.unit)

    reached = f"By {kind}, its {_words(objective)} is {value(best)}"
    base = view.reference_candidate
    if base is not None and base.objectives:
        reached += f", that of {view.reference} {value(base)}"
    sentences = (
        f"{reached}, in trainings that the search chose from.",
        "Nothing is decided: the best score of many is too high, an estimate rests on a model, and "
        f"leads shrink in longer trainings. `nas confirm {view.label}` trains the best again with "
        "fresh seeds, with `--long TASK` also under a longer task.",
        _effort(view),
    )
    figure = Figure(value(best), f"{_words(objective)}, {kind}", kind)
    headline = f"{view.called(best)} has the best {kind} so far, and is not yet confirmed."
    return Verdict(headline, sentences, (figure, *_cost_figures(view, best)))


def _confirmed(view: RunView, metric: Objective, finds: list[Candidate]) -> Verdict:
    objectives, unit, fresh = view.setup.objectives, metric.unit, view.fresh[SEARCHED]

    def rank(candidate: Candidate) -> tuple[bool, float]:
        values = candidate.objectives
        return bool(beyond_limits(objectives, values)), metric.as_cost(values[metric.name])

    best = min(finds, key=rank)
    name, cell, reference = view.called(best), fresh[best.key], view.reference
    base = fresh.get(view.reference_key or "")
    reached, seeds = _value(cell.mean or 0.0, cell.error, unit), plural(cell.seeds, "fresh seed")
    known: dict[str, Difference] = {}
    for title, cells in view.fresh.items():
        if best.key in cells and (lead := cells[best.key].difference):
            known[title] = lead
    first = (
        f"{name} has the best {'estimate' if best.is_estimated else 'score'} of the confirmed "
        f"mechanisms, and reaches {_words(metric)} {reached} over {seeds}"
    )
    if base is not None:
        first += f", {reference} {_value(base.mean or 0.0, base.error, unit)}"
    if outside := outside_text(objectives, best.objectives):
        first += f". It is not in the front ({outside})"
    leads = [
        f"{title} {minus(points_between(each.mean, each.low, each.high, unit))}, {each.verdict}"
        for title, each in known.items()
    ]
    compared = []
    if leads:
        compared.append(
            f"Mean differences to {reference}{', in points' * (unit == FRACTION)}, with their 95 % "
            f"intervals: {'; '.join(leads)}. Undecided does not mean equal."
        )
    if base is not None and SEARCHED not in known:
        compared.append("They are not compared, because a training of one of them failed.")
    is_better = [(title, lead.verdict) for title, lead in known.items()] == [(SEARCHED, "better")]
    if is_better and view.setup.target is None:
        compared.append(
            f"That is about the search's task; `nas confirm {view.label} --long TASK` measures the "
            "difference in longer trainings, in which most leads shrink."
        )
    figures = [Figure(reached, f"{_words(metric)}, fresh seeds", "fresh")]
    for title, lead in known.items():
        label = f"over {reference}, {'fresh seeds' if title == SEARCHED else title}"
        shown, kind = _points(lead.mean, lead.error, unit), lead.verdict == "better"
        figures.append(Figure(shown, label, "lead" if kind else "fresh"))
    sentences = (f"{first}.", " ".join(compared), _counts(view, finds), _effort(view))
    found = f"{reached} with {seeds}"
    headline = _headline(name, reference, known.get(SEARCHED), unit, found, cell.seeds)
    return Verdict(headline, tuple(filter(None, sentences)), (*figures, *_cost_figures(view, best)))


def _headline(
    name: str, reference: str, lead: Difference | None, unit: str, reached: str, seeds: int
) -> str:
    if lead is None:
        return f"{name} reaches {reached}; it is not compared with {reference}."
    if lead.verdict == "undecided":
        return (
            f"No difference between {name} and {reference} is established with "
            f"{plural(seeds, 'fresh seed')}."
        )
    verb = "leads" if lead.verdict == "better" else "falls behind"
    size, *ends = (_points(abs(v or 0.0), None, unit) for v in (lead.mean, lead.low, lead.high))
    low, high = sorted((end.removesuffix(" points").lstrip("+") for end in ends), key=float)
    interval = f"95 % interval {low} to {high}, {plural(seeds, 'seed')}"
    return f"{name} {verb} {reference} by {size.lstrip('+')} ({interval})."


def _counts(view: RunView, finds: list[Candidate]) -> str:
    sides: dict[str, list[Candidate]] = {side: [] for side in get_args(Side)}
    for find in finds:
        lead = view.fresh[SEARCHED][find.key].difference
        sides.setdefault(lead.verdict if lead else "not compared", []).append(find)
    counts = {side: str(len(those)) for side, those in sides.items()}
    if best := [view.called(find) for find in sides["better"]]:
        counts["better"] += f" ({', '.join(best[:3])}{' and others' if len(best) > 3 else ''})"
    words = "; ".join(f"{side} {count}" for side, count in counts.items())
    return f"Of {plural(len(finds), 'confirmed mechanism')}, beside {view.reference}: {words}."


def _effort(view: RunView) -> str:
    *totals, _ = tally(view)
    return f"The search {'; '.join(f'{name} {text}' for name, text in totals)}."


def _cost_figures(view: RunView, candidate: Candidate) -> Iterator[Figure]:
    shares = view.shares(candidate)
    for objective in view.setup.objectives:
        if objective.name in shares:
            label = f"{cost_noun(objective.name)} of {view.reference}"
            yield Figure(f"{multiple(shares[objective.name])} ×", label, "cost")


def _words(objective: Objective) -> str:
    return objective.name.replace("_", " ")


def _value(mean: float, error: float | None, unit: str) -> str:
    return minus(quantity(mean, unit, error))


def _points(mean: float, error: float | None, unit: str) -> str:
    shown = minus(points(mean, error, unit))
    return f"{shown} points" if unit == FRACTION else shown
