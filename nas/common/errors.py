"""Everything that can go wrong because of what a user gave us, as one sentence each.

A message says where, what was found, what was expected and what to do. It may repeat what others
wrote, so it is printable and of bounded length. What only we can cause is an ``assert`` and never
one of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from nas.common.text import message as shown


class NasError(Exception):
    """Base of all errors that a user can cause; the command line prints it and exits."""

    exit_status = 2

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


class NasWarning(UserWarning):
    """Something that a user should know of, in a sentence; the command line prints it."""


class ConfigError(NasError):
    """A file or value cannot be read: syntax, unknown key, wrong type, outside its domain."""


class GenomeError(ConfigError):
    """A genome cannot be read, or cannot exist at the sizes asked for."""


class SpaceError(ConfigError):
    """A search space contradicts itself, its policy or the primitives."""


class PolicyError(ConfigError):
    """A policy's rules cannot be compiled."""


class TaskError(ConfigError):
    """A task is unknown or cannot be trained as written."""


class DataError(NasError):
    """Data is missing, empty, damaged or cannot be had."""


class RunError(NasError):
    """A run does not exist, is in use, is damaged or contradicts its record."""


class TableError(NasError):
    """A table of trainings cannot be read, or does not hold what was asked for."""


class DeviceError(NasError):
    """The hardware that was asked for is not there."""


class ExportError(NasError):
    """A mechanism cannot be written in the form asked for."""


class SpaceExhausted(NasError):  # noqa: N818 - an end, not a fault
    """The space holds no further mechanism that was not seen before."""


class ViolationError(NasError):
    """A genome that can be read but is not legal; carries the violations."""

    exit_status = 1

    def __init__(self, message: str, violations: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)
