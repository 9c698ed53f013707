"""Sentences on the short task of a run with a target task: what it overrates, and its residual."""

from __future__ import annotations

from nas.genome.primitives import get
from nas.report.run_view import RunView
from nas.report.units import quantity
from nas.searching.short_bias import Effect, short_bias


def short_task_notes(view: RunView) -> list[str]:
    """Return what the short task overrates, and a warning if it cannot rank the front's members.

    The list is empty without a target task, and while there are too few target trainings.
    """
    setup, metric = view.setup, view.metric
    if setup.target is None or metric is None:
        return []
    bias = short_bias(metric, view.trained.values(), view.members)
    if bias is None:
        return []
    notes = []
    for effect in bias.effects:
        verb = "overrates" if effect.mean > 0 else "underrates"
        size = _interval(effect, metric.unit)
        notes.append(
            f"{setup.task.name} {verb} mechanisms with {_words(effect.feature)}, relative to "
            f"{setup.target.name}, by {size}."
        )
    if bias.front_spread is not None and bias.residual > bias.front_spread:
        notes.append(
            f"{setup.task.name} does not explain a standard deviation of "
            f"{quantity(bias.residual, metric.unit)} of the {metric.name} under "
            f"{setup.target.name}, more than that of the front's members, "
            f"{quantity(bias.front_spread, metric.unit)}: it cannot rank them."
        )
    return notes


def _words(feature: str) -> str:
    """Return the name of a feature of mechanisms in words, such as "rope of v"."""
    source, edge, target = feature.partition(" > ")
    if edge:
        name, _, slot = target.partition(".")
        operands = get(name).signatures[0].inputs
        if len(operands) == 1:
            return f"{name} of {source}"
        return f"{source} as {operands[int(slot)].name} of {name}"
    name, _, value = feature.partition("=")
    return f"{name.replace('.', ' with ')} = {value}" if value else name


def _interval(effect: Effect, unit: str) -> str:
    size, *ends = (quantity(abs(x), unit) for x in (effect.mean, effect.low, effect.high))
    low, high = ends if effect.mean > 0 else reversed(ends)
    return f"{size} (95 % interval: {low} to {high})"
