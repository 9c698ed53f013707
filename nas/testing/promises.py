"""Promises: what a member of a family keeps, each a function whose docstring says it in a line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor

Promise: TypeAlias = Callable[..., None]


def require(holds: object, found: str) -> None:
    """Go on only where it holds; unlike an ``assert`` under ``python -O``, too.

    Raises:
        AssertionError: it does not; ``found`` says what is there instead.
    """
    if not holds:
        raise AssertionError(found)


def require_same(found: Tensor, wanted: Tensor, what: str, tolerance: float = 1e-12) -> None:
    """Go on only where two tensors have equal shapes and, up to a tolerance, numbers.

    The tolerance is of the size of the numbers where that is above one.

    Raises:
        AssertionError: they differ.
    """
    shapes = tuple(found.shape), tuple(wanted.shape)
    require(shapes[0] == shapes[1], f"{what} has the shape {shapes[0]}, not {shapes[1]}")
    far = ~torch.isclose(found.double(), wanted.double(), rtol=tolerance, atol=tolerance)
    if far.any():
        gap = (found.double() - wanted.double()).abs()[far].max().item()
        raise AssertionError(f"{what} differs by up to {gap:.2g}, allowed is {tolerance:.2g}")


def keep(subject: object, promises: Iterable[Promise], *arguments: Any) -> None:
    """Hold a subject to its promises.

    Raises:
        AssertionError: one is broken; a sentence that says which, and what was found.
    """
    for promise in promises:
        said = (inspect.getdoc(promise) or "").split("\n", 1)[0].removesuffix(".")
        try:
            promise(*arguments)
        except AssertionError as error:
            raise AssertionError(f"{subject} breaks a promise ({said}): {error}.") from None
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise AssertionError(f"{subject} breaks a promise ({said}): {what}") from error
