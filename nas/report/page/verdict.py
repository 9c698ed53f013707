"""The verdict in words: what holds, how sure, at what cost, and how far the search was right.

Three numbers are never mixed up: a *score* is the mean of a mechanism's own trainings in the
search, of the best of many too high; an *estimate* is what the search believes; a *fresh* mean is
of trainings with seeds that the search never saw. Who leads is said of the search's own best,
chosen before any fresh seed, so that fresh numbers are not those of a lucky one.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from nas.common.differences import LEVEL, difference, mean_and_error
from nas.report.run_view import FRESH, STANDARD
from nas.report.text import plural
from nas.report.trials import points
from nas.report.units import FRACTION, duration, header, percent, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nas.common.objectives import Objective
    from nas.report.run_view import Mechanism, RunView

CHEAPER: Final = 0.9  # share of standard attention's cost up to which less is worth a headline
NOUNS: Final = {"kv_cache_bytes_per_token": "KV cache", "decode_ms": "decoding time"}
MINUS: Final = str.maketrans({"-": "−"})
# By the side of a gain: who leads, and how it goes on after a lead and where there was none.
LEADS: Final = {1: "leads", 0: "is level with", -1: "falls behind"}
AFTER_LEAD: Final = {1: "the lead holds", 0: "no clear lead is left", -1: "it falls behind"}
AFTER_NONE: Final = {1: "it leads", 0: "it is level", -1: "it falls behind"}


class Gain(NamedTuple):
    """A difference to standard attention between equal seeds, and its standard error.

    ``side`` is 1 where it is clearly better, -1 where clearly worse (Student's t), else 0.
    """

    mean: float
    error: float | None
    side: int


@dataclass(frozen=True)
class Verdict:
    """A headline, sentences that explain it, and its figures: value, label, what kind it is."""

    headline: str
    sentences: tuple[str, ...]
    figures: tuple[tuple[str, str, str], ...]


def verdict_of(content: RunView) -> Verdict:
    """What can be said of a run."""
    if not content.members:
        counts = content.counts
        headline = "No training has ended well yet, so there is no front."
        said = f"{plural(counts.proposed, 'proposal')}, {counts.failed} failed."
        return Verdict(headline, (said,), ())
    best = next((m for m in content.members if _is_confirmed(content, m)), None)
    if best is None or content.metric is None:
        return _unconfirmed(content)
    return _confirmed(content, best)


def _is_confirmed(content: RunView, member: Mechanism) -> bool:
    fresh = content.fresh.get(FRESH["search"], {})
    return member.proposal.key in fresh and member.proposal.key not in content.names


def _confirmed(content: RunView, best: Mechanism) -> Verdict:
    metric, key = content.metric, str(best.proposal.key)
    assert metric is not None
    name, titles = content.called(key), [title for title in content.fresh if title != "fresh"]
    found = content.spread(FRESH["search"], key)
    gain = _gain(content, FRESH["search"], key)
    assert found is not None
    mean, error, seeds = found
    reached = _value(mean, error, metric.unit)
    headline = f"{name} reaches {reached} with {plural(seeds, 'fresh seed')}"
    if gain:
        headline = f"{name} {LEADS[gain.side]} standard attention"
        headline += f" by {_over(gain, metric.unit).lstrip('+−')}" if gain.side else ""
        headline += _still(content, key, titles, gain) or _at_cost(content, key, gain)
    figures = [(reached, f"{_words(metric)}, fresh seeds", "fresh")]
    if gain:
        figures.append((_over(gain, metric.unit), f"over {STANDARD}, fresh seeds", "fresh"))
    figures += [
        (_over(later, metric.unit), f"over {STANDARD}, {title}", "long")
        for title in titles
        if (later := _gain(content, title, key))
    ]
    figures += _cost_figures(content, key)
    said = [
        _held(content, key),
        *(_longer(content, title, key, gain) for title in titles),
        _cheaper(content, key),
        _calibrated(content, best),
        effort(content),
    ]
    return Verdict(f"{headline}.", tuple(filter(None, said)), tuple(figures))


def _unconfirmed(content: RunView) -> Verdict:
    best, objective = content.members[0], content.setup.objectives[0]
    key = str(best.proposal.key)
    name, value = content.called(key), best.objectives[objective.name]
    error = best.errors.get(objective.name)
    is_estimate = best.p is not None and bool(best.errors)
    kind = "estimate" if is_estimate else "score"
    shown = _value(value, error, objective.unit)
    said = [
        f"The search's best by {kind} is {name}: {_words(objective)} {shown}.",
        "Nothing here was confirmed: the best of many is lucky, and an estimate rests on a model. "
        f"`nas confirm {content.label}` trains it again with fresh seeds.",
        effort(content),
    ]
    figures = [(shown, f"{_words(objective)}, {kind}", kind), *_cost_figures(content, key)]
    headline = f"{name} is the best so far, and not yet confirmed."
    return Verdict(headline, tuple(said), tuple(figures))


def _held(content: RunView, key: str) -> str:
    metric = content.metric
    assert metric is not None
    mean, error, seeds = content.spread("fresh", key) or (0.0, None, 0)
    said = (
        f"The search's best by estimate, {content.called(key)}, reaches {_words(metric)} "
        f"{_value(mean, error, metric.unit)} over {plural(seeds, 'fresh seed')}"
    )
    base = content.spread("fresh", content.standard_key) if content.standard_key else None
    gain = _gain(content, "fresh", key)
    if base is None or gain is None:
        return f"{said}."
    return (
        f"{said}, standard attention {_value(base[0], base[1], metric.unit)}: "
        f"{_over(gain, metric.unit)} between equal seeds."
    )


def _longer(content: RunView, title: str, key: str, first: Gain | None) -> str:
    metric, found = content.metric, content.spread(title, key)
    if found is None or metric is None:
        return ""
    task = next(iter(content.fresh[title].values()))[0].task_name
    where = "On the test set" if title.startswith("test") else f"Trained longer (task {task})"
    said = f"{where} it reaches {_value(found[0], found[1], metric.unit)}"
    gain = _gain(content, title, key)
    if gain is None:
        return f"{said}."
    return f"{said}, {_over(gain, metric.unit)} over standard attention: {_lasts(gain, first)}."


def _still(content: RunView, key: str, titles: Sequence[str], gain: Gain) -> str:
    """What becomes of a lead under a longer task or on the test set, for the headline."""
    if not titles or gain.side < 1:
        return ""
    last = _gain(content, titles[-1], key)
    where = "on the test set" if titles[-1].startswith("test") else "trained longer"
    return f"; {where}, {_lasts(last, gain)}" if last else ""


def _at_cost(content: RunView, key: str, gain: Gain) -> str:
    """What a mechanism that is level saves most of, for the headline."""
    found = content.shares(content.trained[key])
    names = [o.name for o in content.setup.objectives if o.name in found]
    least = min(names, key=lambda name: found[name], default="")
    if gain.side or not least or found[least] > CHEAPER:
        return ""
    return f" at {found[least]:.2f} of its {_noun(least)}"


def _lasts(later: Gain, first: Gain | None) -> str:
    return (AFTER_LEAD if first and first.side > 0 else AFTER_NONE)[later.side]


def _cheaper(content: RunView, best: str) -> str:
    """The cheapest that still leads clearly, by the first cost."""
    metric, costs = content.metric, [o for o in content.setup.objectives if not o.is_metric]
    if metric is None or not costs or content.standard_key is None:
        return ""
    leading = {
        key: gain
        for key in content.fresh.get("fresh", {})
        # What was trained to confirm alone, as standard attention or a control, has no costs here.
        if key in content.trained
        and key not in content.names
        and (gain := _gain(content, "fresh", key))
        and gain.side > 0
    }
    cost = costs[0].name
    least = min(leading, key=lambda key: content.trained[key].costs[cost], default=best)
    if least == best:
        return ""
    shown = _shares(content, least)
    return (
        f"The cheapest that still leads is {content.called(least)}: "
        f"{_over(leading[least], metric.unit)} over standard attention, at {shown}."
    )


def _calibrated(content: RunView, best: Mechanism) -> str:
    """By how much scores and estimates were too good, over all that were confirmed."""
    metric = content.metric
    assert metric is not None
    pairs = [
        (member.scores[metric.name], member.objectives[metric.name], found[0])
        for member in content.members
        if _is_confirmed(content, member)
        and (found := content.spread("fresh", str(member.proposal.key)))
    ]
    sign = 1 if metric.direction == "max" else -1
    scores = sign * fmean(score - fresh for score, _, fresh in pairs)
    beliefs = sign * fmean(belief - fresh for _, belief, fresh in pairs)
    own = _value(best.objectives[metric.name], best.errors.get(metric.name), metric.unit)
    scored = _value(best.scores[metric.name], None, metric.unit)
    return (
        f"The search had scored it {scored} and believed {own}. "
        f"Over the {plural(len(pairs), 'confirmed member')}, beside the fresh means, scores were "
        f"too good by {_points(scores, None, metric.unit)}, estimates by "
        f"{_points(beliefs, None, metric.unit)}."
    )


def effort(content: RunView) -> str:
    """How much was tried, and how long it took."""
    counts = content.counts
    failed = f"{counts.failed} failed" if counts.failed else "none failed"
    failed += f", {counts.stopped} stopped at a gate" if counts.stopped else ""
    busy = f", workers busy {percent(content.busy)} %" if content.busy is not None else ""
    return (
        f"{plural(counts.proposed, 'proposal')}: {counts.evaluated:,} mechanisms trained "
        f"({failed}), {counts.repeated} trained again, {counts.replayed} known already, "
        f"{counts.rejected} not legal; {duration(content.wall_seconds)}, "
        f"{duration(content.core_seconds)} of core time{busy}."
    )


def _cost_figures(content: RunView, key: str) -> Iterator[tuple[str, str, str]]:
    found = content.shares(content.trained[key])
    for objective in content.setup.objectives:
        if objective.name in found:
            yield f"{found[objective.name]:.2f} ×", f"{_noun(objective.name)} of {STANDARD}", "cost"


def _shares(content: RunView, key: str) -> str:
    found = content.shares(content.trained[key])
    names = [o.name for o in content.setup.objectives if o.name in found]
    said = " and ".join(f"{found[name]:.2f} of its {_noun(name)}" for name in names)
    return said or "another cost"


def _noun(cost: str) -> str:
    return NOUNS.get(cost) or header(cost).removesuffix(" ms")


def _gain(content: RunView, title: str, key: str) -> Gain | None:
    gains, metric = content.gains(title, key), content.metric
    if not gains or metric is None:
        return None
    (mean, error), found = mean_and_error(gains), difference(gains)
    side = 1 if (mean > 0) == (metric.direction == "max") else -1
    return Gain(mean, error, side if found and found["p"] < LEVEL else 0)


def _words(objective: Objective) -> str:
    return objective.name.replace("_", " ")


def _value(mean: float, error: float | None, unit: str) -> str:
    return quantity(mean, unit, error).translate(MINUS)


def _over(gain: Gain, unit: str) -> str:
    return _points(gain.mean, gain.error, unit)


def _points(mean: float, error: float | None, unit: str) -> str:
    shown = points(mean, error, unit).translate(MINUS)
    return f"{shown} points" if unit == FRACTION else shown
