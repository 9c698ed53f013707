"""Domains of parameters: classes that hold the valid values of a parameter and its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nas.common.config import describe
from nas.genome import ParamValue


@dataclass(frozen=True)
class Domain:
    """A parameter's domain; ``default`` is the value in nodes that do not set the parameter."""

    default: Any

    @property
    def expected(self) -> str:
        """The valid values in words, such as "a whole number from 1 to 8"."""
        raise NotImplementedError

    def contains(self, value: ParamValue) -> bool:
        """Return whether a value is valid."""
        raise NotImplementedError

    def accept(self, value: ParamValue) -> ParamValue:
        """Return a valid value (4.0 for 4 in a ``Real``); raise ``ValueError`` for others."""
        if self.contains(value):
            return value
        raise ValueError(f"found {describe(value)}; expected {self.expected}")


@dataclass(frozen=True)
class Choice(Domain):
    """One word of a list."""

    default: str
    values: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.values)}"

    def contains(self, value: ParamValue) -> bool:
        return value in self.values


@dataclass(frozen=True)
class Flag(Domain):
    """True or false."""

    default: bool
    expected = "true or false"

    def contains(self, value: ParamValue) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True)
class Integer(Domain):
    """A whole number from ``low`` to ``high``, or None if ``nullable``."""

    default: int | None
    low: int
    high: int
    nullable: bool = False

    @property
    def expected(self) -> str:
        return f"a whole number from {self.low} to {self.high}{' or null' * self.nullable}"

    def contains(self, value: ParamValue) -> bool:
        if value is None:
            return self.nullable
        return type(value) is int and self.low <= value <= self.high


@dataclass(frozen=True)
class Real(Domain):
    """A number above ``low`` and at most ``high``."""

    default: float
    low: float
    high: float

    @property
    def expected(self) -> str:
        return f"a number above {self.low:g} and at most {self.high:g}"

    def contains(self, value: ParamValue) -> bool:
        if isinstance(value, bool | str | None):
            return False
        return self.low < value <= self.high

    def accept(self, value: ParamValue) -> float:
        return float(super().accept(value) or 0)
