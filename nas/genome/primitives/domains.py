"""Domains of parameters: the valid values and the default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nas.common.config import describe, near
from nas.genome import ParamValue


class Domain(Protocol):
    """The valid values of a parameter.

    ``accept`` returns the value in normal form (4.0 for 4 in a ``Real``) or raises ``ValueError``;
    the message contains the found and the expected value.
    """

    @property
    def default(self) -> ParamValue:
        """The value in nodes that do not set the parameter."""
        ...

    def accept(self, value: ParamValue) -> ParamValue:
        """Return the value in normal form, or raise ``ValueError``."""
        ...


@dataclass(frozen=True)
class Choice:
    """A word from a list."""

    default: str
    values: tuple[str, ...]

    def accept(self, value: ParamValue) -> ParamValue:
        """The word itself."""
        if isinstance(value, str) and value in self.values:
            return value
        expected = ", ".join(self.values)
        raise ValueError(
            f"found {describe(value)}; expected one of {expected}{near(value, self.values)}"
        )


@dataclass(frozen=True)
class Flag:
    """True or false."""

    default: bool

    def accept(self, value: ParamValue) -> ParamValue:
        """The flag itself."""
        if isinstance(value, bool):
            return value
        raise ValueError(f"found {describe(value)}; expected true or false")


@dataclass(frozen=True)
class Integer:
    """A whole number from ``low`` to ``high``; ``None`` is valid if ``nullable``."""

    default: int | None
    low: int
    high: int
    nullable: bool = False

    def accept(self, value: ParamValue) -> ParamValue:
        """The number itself."""
        if value is None and self.nullable:
            return None
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and self.low <= int(value or 0) <= self.high:
            return value
        null = " or null" if self.nullable else ""
        raise ValueError(
            f"found {describe(value)}; expected a whole number from {self.low} to {self.high}{null}"
        )


@dataclass(frozen=True)
class Real:
    """A number above ``low`` and at most ``high``."""

    default: float
    low: float
    high: float

    def accept(self, value: ParamValue) -> ParamValue:
        """The number as a float."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and self.low < float(value or 0) <= self.high:
            return float(value or 0)
        raise ValueError(
            f"found {describe(value)}; expected a number above {self.low:g} "
            f"and at most {self.high:g}"
        )
