"""The table of a benchmark, printed row by row while it is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from nas.common.differences import mean_and_error

Row = Mapping[str, object]  # values by the title of their column


@dataclass(frozen=True)
class Spread:
    """A number with a lower and an upper value, by default the quartiles over rounds."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_text(self.value)} [{_text(self.low)}, {_text(self.high)}]"


@dataclass(frozen=True)
class Mean:
    """A mean and its standard error; zero if there is one sample."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        """Return the mean of samples."""
        mean, error = mean_and_error(values)
        return cls(mean, error or 0.0)

    def __str__(self) -> str:
        return f"{_text(self.value)} ± {_text(self.error)}"


def print_rows(rows: Iterable[Row]) -> list[Row]:
    """Print rows as they come, with a header before each change of columns; return them."""
    printed: list[Row] = []
    widths: list[int] = []
    for row in rows:
        texts = [_text(value) for value in row.values()]
        if not printed or [*printed[-1]] != [*row]:
            pairs = zip(row, texts, row.values(), strict=True)
            widths = [max(len(n), len(t), 34 if isinstance(v, str) else 9) for n, t, v in pairs]
            print("\n" + _line(list(row), row, widths))
        print(_line(texts, row, widths), flush=True)
        printed.append(row)
    return printed


def to_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return rows as JSON: a ``Spread`` as [value, low, high], a ``Mean`` as [value, error]."""
    return [
        {n: list(astuple(v)) if isinstance(v, Spread | Mean) else v for n, v in row.items()}
        for row in rows
    ]


def _line(texts: Sequence[str], row: Row, widths: Sequence[int]) -> str:
    cells = zip(texts, row.values(), widths, strict=True)
    padded = (t.ljust(w) if isinstance(v, str) else t.rjust(w) for t, v, w in cells)
    return "  ".join(padded).rstrip()


def _text(value: object) -> str:
    """Return a number with about three significant digits."""
    if isinstance(value, float):
        size = abs(value)
        digits = ",.0f" if size >= 100 else ".2f" if size >= 1 else ".3f"
        return f"{value:.1e}" if 0 < size < 0.001 else f"{value:{digits}}"
    return f"{value:,}" if isinstance(value, int) else str(value)
