"""Promises of a family of extensions, as functions that raise AssertionError if one is broken.

The first line of a function's docstring states the promise, and stands in the error message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

Promise: TypeAlias = Callable[..., None]

PROBED: Final = 32, 40  # examples and tokens in which ``nas.training.dependence`` finds leaks


def require(condition: object, finding: str) -> None:
    """Raise AssertionError with the message ``finding`` unless a condition holds."""
    if not condition:
        raise AssertionError(finding)


def require_same(actual: Tensor, expected: Tensor, what: str, tolerance: float = 1e-12) -> None:
    """Raise AssertionError unless the tensor named ``what`` has equal shape and close numbers."""
    tensors = actual.double(), expected.double()
    torch.testing.assert_close(
        *tensors, rtol=tolerance, atol=tolerance, msg=lambda found: f"{what}: {found}"
    )


def noisy(module: nn.Module) -> nn.Module:
    """Return a module in float64 with noise on its weights, since zeros would hide errors."""
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def gradients(out: Tensor, leaves: Iterable[Tensor]) -> list[Tensor]:
    """Return the gradients of a weighted sum of the finite numbers of ``out``.

    The gradient of a leaf that the sum does not depend on is zero.
    """
    leaves = list(leaves)
    if not out.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    finite = torch.where(out.isfinite(), out, 0.0).double()
    weights = torch.linspace(-1.0, 1.0, finite.numel(), dtype=finite.dtype).view_as(finite)
    loss = (finite * weights).sum()
    return list(torch.autograd.grad(loss, leaves, materialize_grads=True, retain_graph=True))


def keep(subject: object, promises: Iterable[Promise], *arguments: Any) -> None:
    """Call each promise; a broken one raises AssertionError with subject, promise and finding."""
    for promise in promises:
        line = (inspect.getdoc(promise) or "").split("\n", 1)[0].removesuffix(".")
        try:
            promise(*arguments)
        except Exception as error:
            is_finding = isinstance(error, AssertionError)
            finding = f"{error}." if is_finding else f"{type(error).__name__}: {error}"
            message = f"{subject} breaks a promise ({line}): {finding}"
            raise AssertionError(message) from (None if is_finding else error)
