"""Promises of a family: functions that raise AssertionError, described by their docstring line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor

Promise: TypeAlias = Callable[..., None]


def require(condition: object, finding: str) -> None:
    """Raise AssertionError(finding) unless the condition holds, also under ``python -O``."""
    if not condition:
        raise AssertionError(finding)


def require_same(actual: Tensor, expected: Tensor, what: str, tolerance: float = 1e-12) -> None:
    """Raise AssertionError unless two tensors have equal shapes and close numbers.

    Args:
        tolerance: absolute, and relative to numbers above one.
    """
    shapes = tuple(actual.shape), tuple(expected.shape)
    require(shapes[0] == shapes[1], f"{what} has the shape {shapes[0]}; expected {shapes[1]}")
    far = ~torch.isclose(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)
    if far.any():
        gap = (actual.double() - expected.double()).abs()[far].max().item()
        raise AssertionError(f"{what} differs by up to {gap:.2g}; expected at most {tolerance:.2g}")


def keep(subject: object, promises: Iterable[Promise], *arguments: Any) -> None:
    """Call each promise with the arguments.

    Raises:
        AssertionError: a promise is broken; the message names subject, promise and finding.
    """
    for promise in promises:
        line = (inspect.getdoc(promise) or "").split("\n", 1)[0].removesuffix(".")
        try:
            promise(*arguments)
        except Exception as error:
            is_finding = isinstance(error, AssertionError)
            finding = f"{error}." if is_finding else f"{type(error).__name__}: {error}"
            message = f"{subject} breaks a promise ({line}): {finding}"
            raise AssertionError(message) from (None if is_finding else error)
