"""Which of several equal implementations computes a pattern: as measured, or else by a rule.

Dot-product attention, a hidden layer of every pair, a network of every query: each can be computed
in ways that differ in time and memory, and which is the fastest depends on device, precision,
length and width. Who computes a pattern asks ``way``. What was measured (nas.measurement.tuning)
holds within ``using``; a run freezes it. Elsewhere, and in exported files, each pattern's own rule
of thumb holds.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    # By pattern, direction, device, precision and number of keys (see ``place``): the way by width.
    Ways: TypeAlias = Mapping[str, Mapping[int, str]]


class Measured:
    """Ways that were measured, by ``place`` and width; where there are none, rules decide."""

    ways: "Ways" = {}


def way(pattern: str, x: Tensor, keys: int, width: int, rule: str) -> str:
    """The way to compute a pattern here: the one measured at the nearest width, or the rule's.

    Args:
        x: an operand: its device and precision count.
        keys: how many tokens each query looks at.
        width: numbers that a pair's score is made of.
        rule: what to do where nothing was measured.
    """
    found = Measured.ways.get(place(pattern, x, keys)) if Measured.ways else None
    if not found:
        return rule
    return found[min(found, key=lambda known: max(known / width, width / known))]


def place(pattern: str, x: Tensor, keys: int) -> str:
    """Where a measurement holds, as a text: ``dot_product forward_backward cpu bfloat16 65``."""
    dtype = str(product_dtype(x)).removeprefix("torch.")
    direction = "forward_backward" if torch.is_grad_enabled() else "forward"
    return f"{pattern} {direction} {x.device.type} {dtype} {keys}"


def product_dtype(x: Tensor) -> torch.dtype:
    """The type of a matrix product with a tensor: under autocast that of autocast."""
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return x.dtype  # autocast knows no meta device, and leaves float64 alone
    return torch.get_autocast_dtype(device)


@contextmanager
def using(ways: Ways) -> Iterator[None]:
    """Within, patterns are computed in these ways; afterwards as before."""
    before, Measured.ways = Measured.ways, ways
    try:
        yield
    finally:
        Measured.ways = before
