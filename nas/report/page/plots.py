"""Drawings as SVG text: scales with their ticks, an empty frame, marks that say what they are.

Colours are classes that page.css gives one in light and dark. Each kind of number has its own
shape, too: a score is a ring, an estimate a disc, a fresh mean a square; a named mechanism is a
diamond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nas.report.page.markup import Markup, element, join
from nas.report.units import human

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOGARITHMIC_FROM: Final = 20.0  # largest over smallest value
STEPS: Final = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Values to places, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    @classmethod
    def over(
        cls, values: Iterable[float], start: float, end: float, *, may_be_log: bool = False
    ) -> Scale:
        """A scale that shows all values with some room around them."""
        found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(found), max(found)
        if may_be_log and low > 0 and high / low > LOGARITHMIC_FROM:
            room = (high / low) ** 0.05
            return cls(low / room, high * room, start, end, True)
        room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
        return cls(low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        """Where a value stands."""
        low, high = (math.log(v) if self.is_log else v for v in (self.low, self.high))
        at = math.log(value) if self.is_log else value
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, wanted: int = 6) -> list[float]:
        """Round values within the scale."""
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [step * 10.0**decade for decade in decades for step in STEPS[:3]]
        else:
            raw = (self.high - self.low) / wanted
            power = 10.0 ** math.floor(math.log10(raw))
            step = power * next(s for s in STEPS if s * power >= raw * 0.999)
            first = math.ceil(self.low / step)
            found = [i * step for i in range(first, first + 2 * wanted)]
        return [tick for tick in found if self.low <= tick <= self.high]


def drawing(width: float, height: float, label: str, *parts: str) -> Markup:
    """A drawing that has a name for those who cannot see it."""
    return element(
        "svg", element("title", label), *parts, viewBox=f"0 0 {width:g} {height:g}", role="img"
    )


def frame(across: Scale, title: str, top: float, bottom: float) -> Markup:
    """The values across: lines from top to bottom, ticks and a title below."""
    lines = [
        join(
            element("line", class_="grid", x1=across(tick), x2=across(tick), y1=top, y2=bottom),
            text(across(tick), bottom + 18, tick_label(tick), "middle"),
        )
        for tick in across.ticks()
    ]
    return element("g", *lines, text(across.end, bottom + 38, title, "end", "axis"))


def side(up: Scale, title: str, left: float, right: float) -> Markup:
    """The values that go up: lines from left to right, ticks, and a title above."""
    lines = [
        join(
            element("line", class_="grid", x1=left, x2=right, y1=up(tick), y2=up(tick)),
            text(left - 10, up(tick) + 4, tick_label(tick), "end"),
        )
        for tick in up.ticks()
    ]
    return element("g", *lines, text(left, up.end - 14, title, "start", "axis"))


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "tick") -> Markup:
    """Words at a place."""
    return element("text", words, x=x, y=y, text_anchor=anchor, class_=kind)


def tick_label(value: float) -> str:
    """A tick as people write it."""
    if abs(value) >= 1000:
        return human(value).replace(".00", "")
    return f"{value:.6g}".replace("-", "−")


def mark(shape: str, x: float, y: float, size: float, words: str = "") -> Markup:
    """A shape: ring, disc, square or diamond; its words are shown when it is pointed at."""
    told = element("title", words) if words else None
    if shape in {"ring", "disc"}:
        return element("circle", told, class_=f"mark {shape}", cx=x, cy=y, r=size)
    if shape == "square":
        side = 1.8 * size
        at = {"x": x - side / 2, "y": y - side / 2}
        return element("rect", told, class_="mark square", width=side, height=side, **at)
    wide = 1.35 * size
    path = f"M{x:.1f} {y - wide:.1f}l{wide:.1f} {wide:.1f}"
    path += f"l{-wide:.1f} {wide:.1f}l{-wide:.1f} {-wide:.1f}z"
    return element("path", told, class_=f"mark {shape}", d=path)


def bar(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """An error bar."""
    return element("line", class_=f"bar {kind}", x1=x1, y1=y1, x2=x2, y2=y2)


def dots(places: Iterable[tuple[float, float]], kind: str) -> Markup:
    """Very many dots as one path; of those that would cover each other, one."""
    found = {(round(x / 3), round(y / 3)): (x, y) for x, y in places}
    return element("path", class_=kind, d="".join(f"M{x:.0f} {y:.0f}h0" for x, y in found.values()))


def line(places: Sequence[tuple[float, float]], kind: str) -> Markup:
    """A line through places."""
    path = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
    return element("path", class_=kind, d=path)


def stairs(places: Sequence[tuple[float, float]], kind: str) -> Markup:
    """Steps: across first, then up."""
    (x, y), *others = places
    path = f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in others)
    return element("path", class_=kind, d=path)
