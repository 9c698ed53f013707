"""Errors that a user's input can cause; faults of this package raise AssertionError.

A message may quote untrusted text, so control characters are escaped and the length is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from nas.common.text import message as shown


class NasError(Exception):
    """Base of these errors; the command line prints the message and exits with ``exit_status``."""

    exit_status = 2

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))


class NasWarning(UserWarning):
    """Base of all warnings of this package; the command line prints them."""


class ConfigError(NasError):
    """A file or argument has wrong syntax, an unknown key, or a value that is not allowed."""


class GenomeError(ConfigError):
    """A genome cannot be read, or does not exist at the requested width, heads or tokens."""


class SpaceError(ConfigError):
    """A search space contradicts itself, the rules for its genomes, or the primitives."""


class TaskError(ConfigError):
    """A task is unknown or cannot be trained as written."""


class DataError(NasError):
    """Data are missing, empty, damaged or cannot be downloaded."""


class RunError(NasError):
    """The folder of a search is missing, in use, damaged or does not fit the command."""


class DeviceError(NasError):
    """The requested processors, GPUs or cluster are missing or cannot be used."""


class ExportError(NasError):
    """A mechanism cannot be exported in the requested format."""


class SpaceExhausted(NasError):  # noqa: N818 - no fault
    """The search space contains no mechanism that has not been trained yet."""


class ViolationError(NasError):
    """A genome does not type-check, or breaks the rules ``violations`` of the validator."""

    exit_status = 1

    def __init__(self, message: str, violations: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.violations = tuple(violations)
