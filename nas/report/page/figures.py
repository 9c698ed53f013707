"""The figures that need no script: the front, what holds, and how the search went."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from nas.common.differences import mean_and_error
from nas.common.pareto import non_dominated
from nas.report.facts import FRESH, STANDARD
from nas.report.page.content import shares, spread
from nas.report.page.markup import Markup, element, join, link
from nas.report.page.plots import (
    Scale,
    bar,
    dots,
    drawing,
    frame,
    line,
    mark,
    side,
    stairs,
    text,
)
from nas.report.trials import points
from nas.report.units import FRACTION, amount, header

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.common.objectives import Objective
    from nas.report.page.content import Content, Mechanism

    Axes = tuple[Objective, Objective]

WIDTH: Final = 1120.0
ROW: Final = 34.0


def run_class(index: int) -> str:
    """The class that gives a run its colour."""
    return f"run r{index % 6}"


def factor(objective: Objective) -> float:
    """What a value is multiplied by to stand on an axis: fractions are shown in per cent."""
    return 100.0 if objective.unit == FRACTION else 1.0


def front_figure(contents: Sequence[Content]) -> Markup:
    """All mechanisms by the first run's first cost and first metric: fronts, named ones, clouds."""
    axes = axes_of(contents[0].setup.objectives)
    names = {objective.name for objective in axes}
    shown = [c for c in contents if names <= {o.name for o in c.setup.objectives}]
    clouds = [{key: _place(m, axes) for key, m in c.trained.items()} for c in shown]
    every = [place for cloud in clouds for place in cloud.values() if place]
    across, up = axes
    x = Scale.over([a for a, _ in every], 64, WIDTH - 20, may_be_log=across.direction == "min")
    y = Scale.over([b for _, b in every], 470, 40)
    parts = [
        frame(x, header(across.name, across.unit), y.end, y.start),
        side(y, header(up.name, up.unit), x.start, x.end),
    ]
    for index, (content, cloud) in enumerate(zip(shown, clouds, strict=True)):
        places = {key: (x(at[0]), y(at[1])) for key, at in cloud.items() if at}
        members = [str(m.proposal.key) for m in content.members]
        drawn = [dots(places.values(), "cloud"), *_stairs([places[key] for key in members], axes)]
        drawn += [
            _marked(content, key, places[key], y)
            for key in dict.fromkeys([*members, *content.names])
            if key in places
        ]
        parts.append(element("g", *drawn, class_=run_class(index)))
    return drawing(WIDTH, 520, "The front: every mechanism by cost and quality", *parts)


def _stairs(places: Sequence[tuple[float, float]], axes: Axes) -> list[Markup]:
    """The staircase through what no other member beats in these two; in pixels, up is less."""
    if [o.direction for o in axes] != ["min", "max"] or not places:
        return []
    return [stairs(sorted({places[i] for i in non_dominated(places)}), "stairs")]


def _place(one: Mechanism, axes: Axes) -> tuple[float, float] | None:
    """Where a mechanism is believed to be; None while it has no result."""
    values = one.result.objectives if one.result else None
    if values is None:
        return None
    across, up = (factor(objective) * values[objective.name] for objective in axes)
    return across, up


def _marked(content: Content, key: str, at: tuple[float, float], y: Scale) -> Markup:
    """A member of the front, or a named mechanism, with its error bar and its fresh mean."""
    one, metric, (left, top) = content.trained[key], content.metric, at
    is_named = key in content.names
    shape, name = "diamond" if is_named else "disc", content.called(key)
    estimate = one.result.estimate if one.result else None
    error = estimate.errors.get(metric.name, 0.0) if estimate and metric else 0.0
    half = abs(y(factor(metric) * error) - y(0.0)) if metric else 0.0
    fresh = spread(content.values(FRESH["search"], key)) if metric else None
    return join(
        bar(left, top - half, left, top + half, shape) if half else None,
        mark("square", left + 5, y(factor(metric) * fresh[0]), 3.5) if fresh and metric else None,
        mark(shape, left, top, 5, f"{name}: {one.formula}"),
        text(left + 11, top + 4, name, "start", "name named") if is_named else None,
    )


def axes_of(objectives: Sequence[Objective]) -> Axes:
    """What goes across and up: the first cost if there is one, and the first metric."""
    up = next((o for o in objectives if o.is_metric), objectives[0])
    others = [o for o in objectives if o is not up] or [up]
    return min(others, key=lambda o: (o.is_metric, o.direction != "min")), up


def holds_figure(content: Content) -> Markup | None:
    """What fresh seeds say, a row a mechanism: score, estimate and fresh mean, then leads."""
    title, metric = FRESH["search"], content.metric
    own = content.fresh.get(title)
    if not own or metric is None:
        return None
    unit = factor(metric)
    means = {key: spread(content.values(title, key)) for key in own if key in content.trained}
    found = {key: mean for key, mean in means.items() if mean}
    keys = sorted(found, key=lambda key: found[key][0], reverse=metric.direction == "max")
    gains = {
        t: {k: mean_and_error(g) for k in keys if (g := content.gains(t, k))} for t in content.fresh
    }
    leads = [t for t in content.fresh if any(k != content.standard for k in gains[t])]
    bottom = 46 + ROW * len(keys)
    panels = 1 + len(leads)
    room = (WIDTH - 150 - 150) / (panels + 0.35)
    values = [unit * value for key in keys for value in _seen(content, key, found[key])]
    x = Scale.over(values, 160, 140 + 1.35 * room)
    parts = [
        text(x.start, 18, header(metric.name, metric.unit), "start", "axis"),
        frame(x, "", 34, bottom),
        *(_row(content, k, 46 + ROW * (i + 0.5), x, unit) for i, k in enumerate(keys)),
    ]
    for number, one in enumerate(leads):
        start = 180 + (1.35 + number) * room
        scale = Scale.over(
            [unit * (g[0] + s * (g[1] or 0)) for g in gains[one].values() for s in (-1, 1)] + [0.0],
            start,
            start + room - 60,
        )
        parts.append(_lead_panel(content, one, keys, gains[one], scale, (bottom, unit)))
    parts.append(text(WIDTH, 18, _cost_title(content), "end", "axis"))
    parts += [
        text(WIDTH, 50 + ROW * (i + 0.5), _cost_text(content, key), "end", "value")
        for i, key in enumerate(keys)
    ]
    return drawing(WIDTH, bottom + 30, "What fresh seeds say of each mechanism", *parts)


def _seen(content: Content, key: str, fresh: tuple[float, float | None, int]) -> list[float]:
    """All values of a row with the ends of their bars."""
    score, belief, error = _searched(content, key)
    mean, spread_, _ = fresh
    ends = [mean - (spread_ or 0.0), mean + (spread_ or 0.0), belief - error, belief + error]
    return [*ends, score]


def _searched(content: Content, key: str) -> tuple[float, float, float]:
    """Score, estimate and its error of a mechanism."""
    metric, result = content.metric, content.trained[key].result
    assert metric is not None
    assert result is not None
    score = (result.scores or {}).get(metric.name, float("nan"))
    if result.estimate is None:
        return score, score, 0.0
    error = result.estimate.errors.get(metric.name, 0.0)
    return score, result.estimate.means.get(metric.name, score), error


def _row(content: Content, key: str, at: float, x: Scale, unit: float) -> Markup:
    """The three numbers of a mechanism one above the other, and its name."""
    metric = content.metric
    assert metric is not None
    fresh = spread(content.values(FRESH["search"], key))
    assert fresh is not None
    (score, belief, error), (mean, deviation, seeds) = _searched(content, key), fresh
    name, digest = content.called(key), content.trained[key].digest
    kind = "name named" if key in content.names else "name"
    shown = amount(mean, metric.unit, deviation)
    return element(
        "g",
        link(text(0, at + 4, name, "start", kind), content.name, digest),
        bar(x(unit * (belief - error)), at - 6, x(unit * (belief + error)), at - 6, "disc"),
        mark("ring", x(unit * score), at - 6, 4, f"score {amount(score, metric.unit)}"),
        mark("disc", x(unit * belief), at - 6, 4, f"estimate {amount(belief, metric.unit, error)}"),
        bar(
            x(unit * (mean - (deviation or 0))),
            at + 6,
            x(unit * (mean + (deviation or 0))),
            at + 6,
            "square",
        ),
        mark("square", x(unit * mean), at + 6, 4, f"fresh {shown} ({seeds} seeds)"),
    )


def _lead_panel(
    content: Content,
    title: str,
    keys: Sequence[str],
    gains: dict[str, tuple[float, float | None]],
    x: Scale,
    sizes: tuple[float, float],
) -> Markup:
    """Differences to standard attention between equal seeds."""
    (bottom, unit), metric = sizes, content.metric
    assert metric is not None
    zero = element("line", class_="zero", x1=x(0), x2=x(0), y1=34, y2=bottom)
    parts = [text(x.start, 18, f"over {STANDARD}, {title}", "start", "axis")]
    parts += [frame(x, "", 34, bottom), zero]
    for i, key in enumerate(keys):
        if key in gains and key != content.standard:
            (mean, error), at = gains[key], 46 + ROW * (i + 0.5)
            low, high = (unit * (mean + sign * (error or 0.0)) for sign in (-1, 1))
            parts.append(bar(x(low), at, x(high), at, "square"))
            parts.append(mark("square", x(unit * mean), at, 4, points(mean, error, metric.unit)))
    return element("g", *parts)


def _cost_title(content: Content) -> str:
    costs = [header(o.name) for o in content.setup.objectives if not o.is_metric]
    names = ", ".join(name.removesuffix(" ms") for name in costs)
    return f"{names} × {STANDARD}" if content.standard else ""


def _cost_text(content: Content, key: str) -> str:
    found = shares(content, key)
    names = [o.name for o in content.setup.objectives if o.name in found]
    return "   ".join(f"{found[name]:.2f}" if found[name] >= 0.01 else "<0.01" for name in names)


def course_figure(contents: Sequence[Content], *, over_time: bool) -> Markup:
    """Hypervolume after each generation, over trainings or over their core-seconds."""
    courses = [_course(content, over_time=over_time) for content in contents]
    every = [place for course in courses for place in course]
    x = Scale.over([0.0, *(a for a, _ in every)], 56, 540)
    y = Scale.over([b for _, b in every], 262, 40)
    title = "core-minutes of training" if over_time else "trainings"
    parts = [frame(x, title, y.end, y.start), side(y, "hypervolume", x.start, x.end)]
    for index, course in enumerate(courses):
        places = [(x(a), y(b)) for a, b in course]
        marks = [
            mark("disc", *place, 3.5, f"{a:.0f} {title}: {b:.4f}")
            for place, (a, b) in zip(places, course, strict=True)
        ]
        few = marks if len(marks) <= 200 else []
        parts.append(element("g", line(places, "stairs"), *few, class_=run_class(index)))
    return drawing(560, 310, f"Hypervolume over {title}", *parts)


def _course(content: Content, *, over_time: bool) -> list[tuple[float, float]]:
    """Where the run stood after each generation."""
    trials = content.trials
    work = sorted((r["moment"], r["core_seconds"] / 60 if over_time else 1) for r in trials)
    moments, spent = [moment for moment, _ in work], [0.0, *accumulate(one for _, one in work)]
    return [
        (spent[bisect_right(moments, generation.finished)], generation.hypervolume)
        for generation in content.generations
    ]
