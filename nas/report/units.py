"""Numbers as people read them: three significant digits, a prefix, a unit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIXES: Final = ("", "k", "M", "G", "T", "P")

# Header of a column by objective; what is not listed has its own name and unit.
HEADERS: Final[Mapping[str, str]] = {
    "accuracy": "accuracy %",
    "macs": "MACs",
    "params": "params",
    "kv_cache_bytes_per_token": "KV B/token",
    "latency_ms": "latency ms",
}


def human(value: float) -> str:
    """A count with a prefix of 1000, in three digits: 1234567 is "1.23 M"."""
    if abs(value) < 1000 and float(value).is_integer():
        return str(int(value))
    for prefix in PREFIXES:
        decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
        # What rounds to 1000 belongs to the next prefix.
        if round(abs(value), decimals) < 1000 or prefix == PREFIXES[-1]:
            return f"{value:.{decimals}f} {prefix}".rstrip()
        value /= 1000
    raise AssertionError("the last prefix takes every value")


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


def measured(name: str, value: float, error: float | None = None) -> str:
    """An objective's value, with its standard error where there is one."""
    if name == "accuracy":
        return percent(value) + (f" ± {percent(error)}" if error is not None else "")
    if name == "latency_ms":
        return f"{value:.3g}" + (f" ± {error:.1g}" if error else "")
    return human(value)


def plural(number: int, noun: str) -> str:
    """A count and its noun: "1 repeat", "3 repeats"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
