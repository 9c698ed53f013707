"""The verdict on a run in words: the best mechanism, its uncertainty, and its costs.

A mechanism is confirmed if ``nas confirm`` trained it again with fresh seeds, that is, seeds that
the search never used. A verdict follows these rules, which tests check on random confirmations:

1. The verdict is about the confirmed mechanism with the best estimate, published or not. If
   objectives have limits, a mechanism within them precedes all mechanisms outside. It is chosen
   before its trainings with fresh seeds, so its mean over fresh seeds has no selection bias. The
   controls, standard attention and ``uniform``, are never chosen and never counted.
2. A mechanism "leads" or "falls behind" standard attention if it is better or worse by the rules of
   ``nas.common.differences``. If a training of either one failed, the two are not compared.
3. Three numbers are distinguished. A *score* is the mean of a mechanism's trainings in the search;
   the best of many scores is biased upwards. An *estimate* is a prediction of the search's model. A
   *fresh* mean is the mean over trainings with fresh seeds.
4. Only the difference of a mechanism that leads is highlighted.
5. Counts include all confirmed mechanisms except the controls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Final, NamedTuple, get_args

from nas.common.differences import Side
from nas.common.objectives import Objective, beyond_limits
from nas.common.text import plural
from nas.costs import cost_noun
from nas.report.comparison import Cell, Difference
from nas.report.run_view import FRESH, STANDARD, RunView, outside_text
from nas.report.units import FRACTION, duration, percent, points, quantity
from nas.store import Candidate

CHEAPER: Final = 0.9  # the headline mentions shares of standard attention's cost up to this
SEARCHED: Final = FRESH["search"]
LEADS: Final[dict[Side, str]] = {"better": "leads", "worse": "falls behind"}
AFTER_LEAD: Final[dict[Side, str]] = {
    "better": "the lead holds",
    "undecided": "no clear lead is left",
    "worse": "it falls behind",
}
AFTER_NONE: Final[dict[Side, str]] = {
    "better": "it leads",
    "undecided": "no difference is established",
    "worse": "it falls behind",
}


class Figure(NamedTuple):
    """A number that is displayed beside a verdict on a run.

    Attributes:
        value: the number as text.
        label: name of the number.
        kind: what the number is: "lead", "fresh", "estimate", "score" or "cost".
    """

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
        counts = view.counts
        proposals = f"{plural(counts.proposed, 'proposal')}, {counts.failed} failed."
        headline = "No training has ended well yet, so there is no front."
        if view.candidates:
            headline = "No trained mechanism is within the limits, so there is no front."
        return Verdict(headline, (proposals,), ())
    if view.metric is not None:
        confirmed = _Confirmed(view, view.metric)
        if confirmed.mechanisms:
            return confirmed.verdict()
    return _unconfirmed(view)


def _unconfirmed(view: RunView) -> Verdict:
    """Return the verdict on a run with a front and without a confirmed mechanism."""
    objective = view.setup.objectives[0]
    best = next((m for m in view.members if m.key not in view.controls), None)
    if best is None:
        headline = "No mechanism but the controls is in the front."
        return Verdict(headline, (effort(view),), ())
    name, kind = view.called(best.key), "estimate" if best.is_estimated else "score"
    kind = kind if objective.is_metric else "cost"
    value, error = best.objectives[objective.name], best.errors.get(objective.name)
    shown = _value(value, error, objective.unit)
    first = view.members[0]
    ahead = "" if first is best else f", after the control {view.called(first.key)}"
    sentences = (
        f"The search's best by {kind} is {name}{ahead}: {_words(objective)} {shown}.",
        "No result is confirmed: the best score of many is too high, and an estimate rests on a "
        f"model. `nas confirm {view.label}` trains the best again with fresh seeds.",
        effort(view),
    )
    figure = Figure(shown, f"{_words(objective)}, {kind}", kind)
    headline = f"{name} is the best so far{ahead}, and not yet confirmed."
    return Verdict(headline, sentences, (figure, *_cost_figures(view, best)))


@dataclass(frozen=True)
class _Confirmed:
    """A run with mechanisms that were trained again with fresh seeds, for a verdict on it."""

    view: RunView
    metric: Objective

    @cached_property
    def mechanisms(self) -> list[Candidate]:
        """The confirmed mechanisms without the controls (mha, uniform), best estimate first.

        Mechanisms outside the limits of the objectives come last.
        """
        view, name = self.view, self.metric.name
        keys = view.fresh.get(SEARCHED, {}).keys() - view.controls
        candidates = [c for c in view.candidates if c.key in keys]
        objectives = view.setup.objectives

        def rank(candidate: Candidate) -> tuple[bool, float]:
            values = candidate.objectives
            return bool(beyond_limits(objectives, values)), self.metric.as_cost(values[name])

        return sorted(candidates, key=rank)

    @cached_property
    def gains(self) -> dict[str, Difference]:
        """Each confirmed mechanism's difference to standard attention, by ``Proposal.key``.

        A mechanism that is not compared with standard attention is absent.
        """
        pairs = ((c.key, self.view.lead(SEARCHED, c.key)) for c in self.mechanisms)
        return {key: gain for key, gain in pairs if gain is not None}

    def verdict(self) -> Verdict:
        view, best, unit = self.view, self.mechanisms[0], self.metric.unit
        later = [(title, view.lead(title, best.key)) for title in view.fresh if title != SEARCHED]
        gain, fresh = self.gains.get(best.key), self._fresh(best)
        reached = _value(fresh.mean or 0.0, fresh.error, unit)
        figures = [Figure(reached, f"{_words(self.metric)}, fresh seeds", "fresh")]
        for title, lead in [(SEARCHED, gain), *later]:
            if lead is not None:
                label = f"over {STANDARD}, {'fresh seeds' if title == SEARCHED else title}"
                kind = "lead" if lead.verdict == "better" else "fresh"
                figures.append(Figure(self._text(lead), label, kind))
        leading = [c for c in self.mechanisms if c.key in self.gains]
        leading = [c for c in leading if self.gains[c.key].verdict == "better"]
        sentences = (
            self._means(best, fresh, gain),
            *(self._longer(best, title, lead, gain) for title, lead in later),
            self._outside(best),
            self._failed(best),
            self._counts(leading),
            self._cheapest(best, leading),
            self._calibration(best),
            self._missing(),
            effort(view),
        )
        return Verdict(
            f"{self._headline(best, fresh, gain, later)}.",
            tuple(filter(None, sentences)),
            (*figures, *_cost_figures(view, best)),
        )

    def _text(self, gain: Difference) -> str:
        return _points(gain.mean, gain.error, self.metric.unit)

    def _fresh(self, candidate: Candidate) -> Cell:
        return self.view.fresh[SEARCHED][candidate.key]

    def _headline(
        self,
        best: Candidate,
        fresh: Cell,
        gain: Difference | None,
        later: list[tuple[str, Difference | None]],
    ) -> str:
        name, seeds = self.view.called(best.key), plural(fresh.seeds, "fresh seed")
        if gain is None:
            reached = _value(fresh.mean or 0.0, fresh.error, self.metric.unit)
            return f"{name} reaches {reached} with {seeds}"
        if gain.verdict == "undecided":
            unresolved = f"No difference between {name} and standard attention is established"
            shares = self.view.shares(best)
            names = [o.name for o in self.view.setup.objectives if o.name in shares]
            least = min(names, key=lambda name: shares[name], default="")
            is_cheaper = least and shares[least] <= CHEAPER
            cost = f"; it has {shares[least]:.2f} of the {cost_noun(least)}" if is_cheaper else ""
            return f"{unresolved} with {seeds}{cost}"
        verb, size = LEADS[gain.verdict], self._text(gain).lstrip("+−")
        headline = f"{name} {verb} standard attention by {size}"
        title, last = later[-1] if later else ("", None)
        if gain.verdict == "better" and last is not None:
            where = "on the test set" if title.startswith("test") else "trained longer"
            headline += f"; {where}, {AFTER_LEAD[last.verdict]}"
        return headline

    def _means(self, best: Candidate, fresh: Cell, gain: Difference | None) -> str:
        view, unit = self.view, self.metric.unit
        sentence = (
            f"Of the confirmed mechanisms the best by "
            f"{'estimate' if best.is_estimated else 'score'}, {view.called(best.key)}, reaches "
            f"{_words(self.metric)} {_value(fresh.mean or 0.0, fresh.error, unit)} over "
            f"{plural(fresh.seeds, 'fresh seed')}"
        )
        base = view.fresh[SEARCHED].get(view.standard_key or "")
        if base is None or gain is None:
            return f"{sentence}."
        standard = f"standard attention {_value(base.mean or 0.0, base.error, unit)}"
        return f"{sentence}, {standard}: {self._text(gain)} between equal seeds."

    def _longer(
        self, best: Candidate, title: str, later: Difference | None, first: Difference | None
    ) -> str:
        spread = self.view.fresh[title].get(best.key)
        if spread is None:
            return ""
        task = self.view.confirmation(self.metric).tasks[title]
        where = "On the test set" if title.startswith("test") else f"Trained longer (task {task})"
        sentence = (
            f"{where} it reaches {_value(spread.mean or 0.0, spread.error, self.metric.unit)}"
        )
        if later is None:
            return f"{sentence}."
        words = AFTER_LEAD if first and first.verdict == "better" else AFTER_NONE
        return f"{sentence}, {self._text(later)} over standard attention: {words[later.verdict]}."

    def _counts(self, leading: list[Candidate]) -> str:
        """Return a sentence on how many mechanisms lead, fall behind, or are undecided.

        They are compared with standard attention. The sentence is empty for fewer than two
        mechanisms, and if none is compared.
        """
        if len(self.mechanisms) < 2 or not self.gains:
            return ""
        counts = Counter(gain.verdict for gain in self.gains.values())
        lead, behind, undecided = (counts[side] for side in get_args(Side))
        names = ", ".join(self.view.called(c.key) for c in leading[:3])
        names += f" and {len(leading) - 3} more" if len(leading) > 3 else ""
        others = len(self.mechanisms) - len(self.gains)
        verb = "is" if others == 1 else "are"
        uncompared = f", {others} {verb} not compared with it" if others else ""
        return (
            f"Of {len(self.mechanisms)} confirmed mechanisms {lead} "
            f"{'leads' if lead == 1 else 'lead'} "
            f"standard attention{f' ({names})' if names else ''}, {behind} "
            f"{'falls' if behind == 1 else 'fall'} behind, {undecided} "
            f"{'is' if undecided == 1 else 'are'} undecided{uncompared}; p is corrected for all."
        )

    def _cheapest(self, best: Candidate, leading: list[Candidate]) -> str:
        """Return a sentence on the cheapest mechanism of ``leading``; empty if it is ``best``."""
        costs = [o.name for o in self.view.setup.objectives if not o.is_metric]
        if not costs or not leading or not self.view.standard:
            return ""
        least = min(leading, key=lambda c: c.costs[costs[0]])
        if least is best:
            return ""
        shares = self.view.shares(least)
        at = [f"{shares[name]:.2f} of the {cost_noun(name)}" for name in costs if name in shares]
        return (
            f"The cheapest that leads is {self.view.called(least.key)}: "
            f"{self._text(self.gains[least.key])} over standard attention, at {' and '.join(at)}."
        )

    def _calibration(self, best: Candidate) -> str:
        """Return sentences on how much too good the search's scores and estimates were.

        They compare the scores (means of trainings in the search) and the estimates of the
        confirmed mechanisms with the means over fresh seeds.
        """
        name, unit = self.metric.name, self.metric.unit
        sign = 1 if self.metric.direction == "max" else -1
        means = [self._fresh(c).mean or 0.0 for c in self.mechanisms]
        pairs = [*zip(self.mechanisms, means, strict=True)]
        scores = sign * fmean(c.scores[name] - mean for c, mean in pairs)
        estimates = sign * fmean(c.objectives[name] - mean for c, mean in pairs)
        return (
            f"The search had scored it {_value(best.scores[name], None, unit)} and estimated "
            f"{_value(best.objectives[name], best.errors.get(name), unit)}. "
            f"Over the {plural(len(pairs), 'confirmed mechanism')}, compared with fresh means, "
            f"scores were {_excess(scores, unit)}, estimates {_excess(estimates, unit)}."
        )

    def _outside(self, best: Candidate) -> str:
        """Return a sentence that says which limits ``best`` exceeds; empty if it exceeds none."""
        text = outside_text(self.view.setup.objectives, best.objectives)
        return text and f"It is not in the front ({text})."

    def _failed(self, best: Candidate) -> str:
        """Return a sentence on failed trainings of ``best`` and of standard attention, else ""."""
        view, standard = self.view, self.view.standard_key or ""
        cells = view.confirmation(self.metric).cells
        counts = {
            name: sum(cells[SEARCHED, key].failed.values()) if (SEARCHED, key) in cells else 0
            for name, key in ((view.called(best.key), best.key), ("standard attention", standard))
        }
        failures = " and ".join(f"{n} of {name}" for name, n in counts.items() if n)
        if not failures:
            return ""
        return (
            f"Of the trainings with fresh seeds {failures} failed; the successful ones are a "
            "biased sample, so the two are not compared."
        )

    def _missing(self) -> str:
        """Return a sentence that says if the front's best mechanism is not confirmed, else ""."""
        name = self.metric.name
        best = min(self.view.members, key=lambda c: self.metric.as_cost(c.objectives[name]))
        if best.key in self.view.fresh[SEARCHED]:
            return ""
        return f"{self.view.called(best.key)}, the best of the front, is not confirmed."


def effort(view: RunView) -> str:
    """Return a sentence on the numbers of a run's proposals by outcome, and its duration."""
    counts = view.counts
    failed = f"{counts.failed} failed" if counts.failed else "none failed"
    failed += f", {counts.stopped} stopped at a gate" if counts.stopped else ""
    busy = f", workers busy {percent(view.busy)} %" if view.busy is not None else ""
    return (
        f"{plural(counts.proposed, 'proposal')}: {counts.evaluated:,} mechanisms trained "
        f"({failed}), {counts.repeated} trained again, {counts.replayed} known already, "
        f"{counts.rejected} not legal; {duration(view.wall_seconds)}, {view.core_time}{busy}."
    )


def _cost_figures(view: RunView, candidate: Candidate) -> Iterator[Figure]:
    shares = view.shares(candidate)
    for objective in view.setup.objectives:
        if objective.name in shares:
            label = f"{cost_noun(objective.name)} of {STANDARD}"
            yield Figure(f"{shares[objective.name]:.2f} ×", label, "cost")


def _words(objective: Objective) -> str:
    return objective.name.replace("_", " ")


def _value(mean: float, error: float | None, unit: str) -> str:
    return quantity(mean, unit, error).replace("-", "−")


def _excess(value: float, unit: str) -> str:
    return f"{_points(abs(value), None, unit).lstrip('+')} too {'good' if value >= 0 else 'bad'}"


def _points(mean: float, error: float | None, unit: str) -> str:
    shown = points(mean, error, unit).replace("-", "−")
    return f"{shown} points" if unit == FRACTION else shown
