"""Mechanisms at several sizes of a task: the result of ``nas.ladder``, and its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.console import Console

from nas.common.scaling import LEAST_SIZES, Estimate, Law, Scaling, SizeScores
from nas.report.comparison import MEASURED, Cell, Comparison
from nas.report.comparison_table import (
    comparison_legend,
    difference_columns,
    mean_text,
    say_failures,
)
from nas.report.result import Result
from nas.report.table import Column, Table, say, say_table
from nas.report.units import digits, header, human, multiple

if TYPE_CHECKING:
    import pandas

FACTOR: Final = 16.0  # of the projection: its compute over that of the largest size


@dataclass(frozen=True)
class Rung(Result):
    """One mechanism at one size.

    Attributes:
        size: name of the task at this size, "TASK WIDTHxDEPTH".
        flops: floating-point operations of a training of the reference.
        cell: the metric, and the difference to the reference.
        time: duration of a training step, relative to the reference's.
        speedup: the effective speed-up. Both are None for the reference, and if fewer than three
            sizes have two pairs of successful trainings.
    """

    size: str
    flops: float
    mechanism: str
    cell: Cell
    time: float | None = None
    speedup: Estimate | None = None


@dataclass(frozen=True)
class Climb(Result):
    """What a mechanism's results at all sizes show, see ``nas.common.scaling``.

    Attributes:
        law: law of the reference's loss of its FLOPs; the loss is the metric, negated if more of it
            is better.
        is_law_doubtful: whether a test rejects that the reference follows the law.
        change: factor by which ten times the compute changes the effective speed-up.
        projection: effective speed-up at ``FACTOR`` times the largest compute, if it is a power of
            compute.
    """

    law: Law
    is_law_doubtful: bool
    change: Estimate
    projection: Estimate


@dataclass(frozen=True)
class Ladder(Result):
    """Mechanisms compared with a reference at several sizes of a task.

    Attributes:
        comparison: the trainings; its parts are the sizes.
        rungs: each mechanism at each size, in ascending order of size.
        climbs: what the results show of each mechanism that has a speed-up at every size.
        hardware: where the times were measured.
    """

    comparison: Comparison
    rungs: tuple[Rung, ...]
    climbs: Mapping[str, Climb]
    hardware: str

    @property
    def is_ok(self) -> bool:
        """Whether at least one training succeeded."""
        return self.comparison.is_ok

    @cached_property
    def table(self) -> pandas.DataFrame:
        """One row for each rung, as a DataFrame."""
        return Table([*_ladder_columns(self)], self.rungs).frame()


def make_ladder(
    comparison: Comparison,
    flops: Mapping[str, float],
    times: Mapping[str, Mapping[str, Sequence[float]]],
    hardware: str,
) -> Ladder:
    """Return the ladder of a comparison; ``flops`` of the reference by size, ascending.

    ``times`` are those of training steps in each round, by size and mechanism, on ``hardware``.
    """
    climbs, found = dict[str, Climb](), dict[tuple[str, str], tuple[float, Estimate]]()
    metric = next(iter(comparison.metrics.values()))
    ideal = metric.ideal if metric.direction == "min" else -metric.ideal
    for mechanism in (row.mechanism for row in comparison.rows):
        scores = {
            size: SizeScores(flops[size], losses, np.divide(own, steps[comparison.against or ""]))
            for size, steps in times.items()
            if (own := steps.get(mechanism)) and (losses := loss_pairs(comparison, size, mechanism))
        }
        if mechanism == comparison.against or len(scores) < LEAST_SIZES:
            continue
        scaling = Scaling([*scores.values()], ideal)
        if len(scores) == len(flops):
            climbs[mechanism] = Climb(scaling.law, scaling.is_law_doubtful, *scaling.trend(FACTOR))
        for size, time, speedup in zip(scores, scaling.times, scaling.speedups(), strict=True):
            found[size, mechanism] = time, speedup
    rungs = (
        Rung(size, flops[size], name, comparison.cells[size, name], *found.get((size, name), ()))
        for size in flops
        for name in (row.mechanism for row in comparison.rows)
        if (size, name) in comparison.cells
    )
    return Ladder(comparison, tuple(rungs), climbs, hardware)


def loss_pairs(comparison: Comparison, size: str, mechanism: str) -> list[list[float]]:
    """Return the losses of the reference and of a mechanism, (pairs, 2); [] if a training failed.

    The loss is the metric, negated if more of it is better.
    """
    cells = (comparison.cells.get((size, name or "")) for name in (comparison.against, mechanism))
    values = [{} if cell is None else cell.values for cell in cells]
    sign = 1 if comparison.metrics[size].direction == "min" else -1
    pairs = [[each[i] for each in values] for i in sorted(values[0].keys() & values[1].keys())]
    losses = [[sign * value for value in pair if value is not None] for pair in pairs]
    return losses if all(len(pair) == 2 for pair in losses) else []


def _ladder_columns(result: Ladder) -> Iterator[Column[Rung]]:
    compared = result.comparison
    metric = next(iter(compared.metrics.values()))
    over, title = f"over {compared.against}", header(metric.name, metric.unit)

    def multiples(key: str, value: Callable[[Rung], float | None]) -> Column[Rung]:
        text = lambda rung: "" if (ratio := value(rung)) is None else multiple(ratio)  # noqa: E731
        return Column(key, f"{key} × {compared.against}", value, text=text, rank=1)

    yield Column("size", "size", lambda rung: rung.size)
    yield Column("flops", "FLOPs", lambda rung: rung.flops, text=lambda rung: human(rung.flops))
    yield Column("mechanism", "mechanism", lambda rung: rung.mechanism, is_number=False, least=12)
    yield Column(
        "mean",
        title,
        lambda rung: rung.cell.mean,
        metric.unit,
        text=lambda rung: mean_text(rung.cell, metric.unit),
    )
    yield from difference_columns(over, over, lambda rung: rung.cell.difference, metric.unit)
    yield Column("learning_rate", "rate", lambda rung: rung.cell.learning_rate, rank=2)
    yield multiples("compute", lambda r: r.time * r.speedup.value if r.time and r.speedup else None)
    yield multiples("time", lambda rung: rung.time)
    yield Column(
        "speedup",
        "speed-up",
        lambda rung: rung.speedup.value if rung.speedup else None,
        text=lambda rung: estimate_text(rung.speedup) if rung.speedup else "",
    )
    yield Column("speedup_low", None, lambda rung: rung.speedup.low if rung.speedup else None)
    yield Column("speedup_high", None, lambda rung: rung.speedup.high if rung.speedup else None)


def estimate_text(estimate: Estimate) -> str:
    """Return a factor with the bounds of its interval, such as "1.35 [1.21, 1.50]"."""
    low, high = estimate.low, estimate.high
    bounds = f"{'0' if low is None else multiple(low)}, {'∞' if high is None else multiple(high)}"
    return f"{multiple(estimate.value)} [{bounds}]"


def ladder_table(console: Console, result: Ladder) -> None:
    """Print the rungs, the law of the reference, and what the results show of each mechanism."""
    compared = result.comparison
    say_table(console, Table([*_ladder_columns(result)], result.rungs))
    say(console, "")
    for row in compared.rows:
        if climb := result.climbs.get(row.mechanism):
            say(console, climb_text(row.mechanism, climb))
        elif row.mechanism != compared.against:
            say(
                console,
                f"{row.mechanism}: no statement on its change with size, because some size lacks "
                "two pairs of successful trainings.",
            )
    for climb in [*result.climbs.values()][:1]:
        law = climb.law
        test = "A test rejects this law: the speed-ups are doubtful." * climb.is_law_doubtful
        if len(compared.metrics) == LEAST_SIZES:
            test = f"{LEAST_SIZES} sizes cannot test this law."
        say(
            console,
            f"{compared.against}: loss = {digits(law.irreducible)} + {digits(law.scale)} "
            f"C^-{law.exponent:.3f} after C FLOPs. {test}".rstrip(),
        )
    place = f"on {result.hardware}" if result.hardware else "after the trainings"
    say(
        console,
        "",
        f"size: task, width x layers; FLOPs: of a training of {compared.against}.",
        f"compute: what {compared.against} needs for the mechanism's loss, by its law; time: of a "
        f"training step, measured in turns {place}. Both are multiples of what "
        f"{compared.against} has at the size.",
        f"speed-up: compute / time, with its 95 % interval: {compared.against} needs so many times "
        "as long for the same loss.",
        *(line for line in comparison_legend(compared) if line != MEASURED),
    )
    say_failures(console, compared)


def climb_text(mechanism: str, climb: Climb) -> str:
    """Return a sentence on how the speed-up of a mechanism changes with size."""
    low, high = climb.change.low, climb.change.high
    way = "neither a rise nor a fall is shown"
    if low is not None and low > 1:
        way = "the speed-up rises with size"
    elif high is not None and high < 1:
        way = "the speed-up falls with size"
    return (
        f"{mechanism}: {way}; with ten times the compute it is {estimate_text(climb.change)} times "
        f"as large. Projected to {FACTOR:g} times the largest compute it is "
        f"{estimate_text(climb.projection)}."
    )
