"""Formatted numbers: three significant digits, a prefix, a unit.

Fractions are shown in per cent, large numbers with a prefix of 1000.
"""

from __future__ import annotations

import math
from typing import Final

from nas.costs import cost_title

PREFIXES: Final = ("", "k", "M", "G", "T", "P")
FRACTION: Final = "fraction"


def header(name: str, unit: str = "") -> str:
    """The title of a column of values: "accuracy %", "MACs"."""
    words = cost_title(name)
    return f"{words} %" if unit == FRACTION else words


def amount(value: float, unit: str = "", error: float | None = None) -> str:
    """A value without its unit, with its standard error if it has one."""
    if unit == FRACTION:
        return percent(value) + (f" ± {percent(error)}" if error is not None else "")
    if error and error < 1000 and abs(value) < 1000:
        places = max(0, 1 - math.floor(math.log10(error)))
        return f"{value:.{places}f} ± {error:.{places}f}"
    text = human(value) if float(value).is_integer() or abs(value) >= 1000 else digits(value)
    return text + (f" ± {human(error) if error >= 1000 else format(error, '.2g')}" if error else "")


def quantity(value: float, unit: str = "", error: float | None = None) -> str:
    """A value with its unit, as in a sentence: "45.1 ± 0.3 %", "1.23 M MACs", "0.40 ms"."""
    words = {FRACTION: "%", "MAC": "MACs"}
    return f"{amount(value, unit, error)} {words.get(unit, unit)}".rstrip()


def human(value: float) -> str:
    """A count with a prefix of 1000, in three digits: 1234567 is "1.23 M"."""
    if abs(value) < 1000 and float(value).is_integer():
        return str(int(value))
    for prefix in PREFIXES:
        decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
        # A value that rounds to 1000 gets the next prefix.
        if round(abs(value), decimals) < 1000 or prefix == PREFIXES[-1]:
            return f"{value:.{decimals}f} {prefix}".rstrip()
        value /= 1000
    raise AssertionError("the last prefix takes every value")


def digits(value: float) -> str:
    """A quantity in three significant digits without a prefix: 0.0123, 1.23, 12,300."""
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.2e}")
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}"


def percent(fraction: float) -> str:
    """A fraction in per cent with one decimal, without the sign."""
    return f"{100 * fraction:.1f}"


def duration(seconds: float) -> str:
    """A time in its two largest units: "47 s", "3 min 20 s", "2 h 05 min", "3 d 04 h"."""
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
