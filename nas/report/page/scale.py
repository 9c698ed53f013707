"""Axes of the page's drawings: values to pixels, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nas.report.units import human

LOGARITHMIC_FROM: Final = 20.0  # largest over smallest value
STEPS: Final = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map from values between ``low`` and ``high`` to pixels."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    @classmethod
    def over(
        cls, values: Iterable[float], start: float, end: float, *, may_be_log: bool = False
    ) -> Scale:
        """A scale over the range of the finite values, with a margin at both ends."""
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        if may_be_log and low > 0 and high / low > LOGARITHMIC_FROM:
            room = (high / low) ** 0.05
            return cls(low / room, high * room, start, end, True)
        room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        return cls(low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high = (math.log(v) if self.is_log else v for v in (self.low, self.high))
        at = math.log(value) if self.is_log else value
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """About ``count`` round values within the scale; by decade on a logarithmic scale."""
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            ticks = [step * 10.0**decade for decade in decades for step in STEPS[:3]]
        else:
            raw = (self.high - self.low) / count
            power = 10.0 ** math.floor(math.log10(raw))
            step = power * next(s for s in STEPS if s * power >= raw * 0.999)
            first = math.ceil(self.low / step)
            ticks = [i * step for i in range(first, first + 2 * count)]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def tick_label(value: float) -> str:
    """The text of a tick."""
    if abs(value) >= 1000:
        return human(value).replace(".00", "")
    return f"{value:.6g}".replace("-", "−")
