"""Domains of parameters: classes that hold the valid values of a parameter and its default.

``accept`` returns a valid value in normal form (4.0 for 4 in a ``Real``). For an invalid value it
raises ``ValueError`` with a message that contains the value and what is expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from nas.common.config import describe, near
from nas.genome import ParamValue


class Domain(Protocol):
    """The protocol of a parameter's domain: its valid values and its default."""

    @property
    def default(self) -> ParamValue:
        """The value of the parameter in nodes that do not set it."""
        ...

    @property
    def expected(self) -> str:
        """The valid values in words, such as "a whole number from 1 to 8"."""
        ...

    def accept(self, value: ParamValue) -> ParamValue:
        """Return a valid value (4.0 for 4 in a ``Real``); raise ``ValueError`` for others."""
        ...


@dataclass(frozen=True)
class Choice:
    """The domain of a parameter whose value is one word of a list."""

    default: str
    values: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The words of the list."""
        return f"one of {', '.join(self.values)}"

    def accept(self, value: ParamValue) -> ParamValue:
        """Return the word; raise ``ValueError`` if it is not in the list."""
        if isinstance(value, str) and value in self.values:
            return value
        hint = near(value, self.values)
        raise ValueError(f"found {describe(value)}; expected {self.expected}{hint}")


@dataclass(frozen=True)
class Flag:
    """The domain of a parameter that is true or false."""

    default: bool
    expected: ClassVar = "true or false"

    def accept(self, value: ParamValue) -> ParamValue:
        """Return the flag; raise ``ValueError`` for any other type."""
        if isinstance(value, bool):
            return value
        raise ValueError(f"found {describe(value)}; expected {self.expected}")


@dataclass(frozen=True)
class Integer:
    """The domain of whole numbers from ``low`` to ``high``, and None if ``nullable``."""

    default: int | None
    low: int
    high: int
    nullable: bool = False

    @property
    def expected(self) -> str:
        """The bounds in words."""
        return f"a whole number from {self.low} to {self.high}{' or null' * self.nullable}"

    def accept(self, value: ParamValue) -> ParamValue:
        """Return the number; raise ``ValueError`` if it is not in the domain."""
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if (value is None and self.nullable) or (
            is_whole and self.low <= int(value or 0) <= self.high
        ):
            return value
        raise ValueError(f"found {describe(value)}; expected {self.expected}")


@dataclass(frozen=True)
class Real:
    """The domain of numbers above ``low`` and at most ``high``."""

    default: float
    low: float
    high: float

    @property
    def expected(self) -> str:
        """The bounds in words."""
        return f"a number above {self.low:g} and at most {self.high:g}"

    def accept(self, value: ParamValue) -> ParamValue:
        """Return the number as a float; raise ``ValueError`` if it is not in the domain."""
        # Compared before the conversion, since an int may be too large for a float.
        number = math.nan if isinstance(value, bool | str | None) else value
        if self.low < number <= self.high:
            return float(number)
        raise ValueError(f"found {describe(value)}; expected {self.expected}")
