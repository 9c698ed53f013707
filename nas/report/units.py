"""Format numbers as text for people.

Numbers have three significant digits, a metric prefix (k, M, G, ...) and a unit. Fractions are
shown in per cent.
"""

from __future__ import annotations

import math
from typing import Final

from nas.common.objectives import Objective
from nas.costs import cost_title

PREFIXES: Final = ("", "k", "M", "G", "T", "P")
FRACTION: Final = "fraction"
ROUNDING: Final = 1e-12  # relative errors below it come from floating-point arithmetic


def header(name: str, unit: str = "") -> str:
    """Return the title of a column of values, such as "accuracy %" or "MACs"."""
    return f"{cost_title(name)} %" if unit == FRACTION else cost_title(name)


def amount(value: float, unit: str = "", error: float | None = None) -> str:
    """Return a value without its unit, followed by "±" and its standard error if there is one."""
    if error is not None and error < ROUNDING * abs(value):
        error = 0.0
    if unit == FRACTION:
        return percent(value) + (f" ± {percent(error)}" if error is not None else "")
    if error and error < 1000 and abs(value) < 1000:
        places = max(0, 1 - math.floor(math.log10(error)))
        return f"{value:.{places}f} ± {error:.{places}f}"
    text = human(value) if float(value).is_integer() or abs(value) >= 1000 else digits(value)
    return text + (f" ± {human(error) if error >= 1000 else format(error, '.2g')}" if error else "")


def quantity(value: float, unit: str = "", error: float | None = None) -> str:
    """Return a value with its unit, such as "45.1 ± 0.3 %", "1.23 M MACs" or "0.40 ms"."""
    words = {FRACTION: "%", "MAC": "MACs"}
    return f"{amount(value, unit, error)} {words.get(unit, unit)}".rstrip()


def points(mean: float, error: float | None, unit: str) -> str:
    """Return a difference with its sign and standard error, of fractions in percentage points."""
    scale, places = (100, 1) if unit == FRACTION else (1, 3)
    if unit != FRACTION and (size := error or abs(mean)):
        places = min(9, max(places, -math.floor(math.log10(size))))
    shown = f"{scale * mean:+.{places}f}"
    return shown if error is None else f"{shown} ± {scale * error:.{places}f}"


def points_between(mean: float, low: float | None, high: float | None, unit: str) -> str:
    """Return a difference with the bounds of its confidence interval, if both are known."""
    shown = points(mean, None, unit)
    if low is None or high is None:
        return shown
    return f"{shown} [{points(low, None, unit)}, {points(high, None, unit)}]"


def limit_text(objective: Objective) -> str:
    """Return the limit of an objective as text, such as "MACs at most 1.20 M"."""
    title, way = header(objective.name), "most" if objective.direction == "min" else "least"
    percent_sign = " %" if objective.unit == FRACTION else ""
    return f"{title} at {way} {amount(objective.corner, objective.unit)}{percent_sign}"


def signed(value: float) -> str:
    """Return a difference of costs with its sign."""
    return f"{'+' if value > 0 else '-'}{amount(abs(value))}" if value else "0"


def multiple(ratio: float) -> str:
    """Return a ratio of costs with two decimals; "<0.01" if it is smaller and not 0."""
    return "<0.01" if 0 < ratio < 0.01 else f"{ratio:.2f}"


def minus(text: str) -> str:
    """Return a number as text with the minus sign "−" in place of a hyphen."""
    return text.replace("-", "−")


def human(value: float) -> str:
    """Return a count in three digits with a metric prefix: 1234567 is "1.23 M"."""
    if abs(value) < 1000 and float(value).is_integer():
        return str(int(value))
    for prefix in PREFIXES:
        decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
        # A value that rounds to 1000 gets the next prefix.
        if round(abs(value), decimals) < 1000 or prefix == PREFIXES[-1]:
            break
        value /= 1000
    return f"{value:.{decimals}f} {prefix}".rstrip()


def digits(value: float) -> str:
    """Return a number in three significant digits without a prefix: 0.0123, 1.23, 12,300."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def percent(fraction: float) -> str:
    """Return a fraction in per cent with one decimal, without the sign "%"."""
    return f"{100 * fraction:.1f}"


def duration(seconds: float) -> str:
    """Return a time in at most two units: "47 s", "3 min 20 s", "2 h 05 min", "3 d 04 h"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"
