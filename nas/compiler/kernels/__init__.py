"""Kernels: faster subclasses of primitives, and functions that compute attention in one call.

A kernel chooses between equivalent computations by device, type and shape only, so that equal seeds
give equal numbers.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

M = TypeVar("M", bound=type[nn.Module])

# Numbers in a tile of scores. On a CPU a tile has 512 KiB, so that three tiles fit a second-level
# cache. On other devices large tiles save kernel launches.
TILE_NUMBERS: Final = {"cpu": 2**17, "other": 2**24}
_FASTER: Final[dict[type[nn.Module], type[nn.Module]]] = {}


def faster(module: M) -> M:
    """Class decorator that registers a class as the faster subclass of its first base class."""
    _FASTER[module.__bases__[0]] = module
    return module


def fast_class(module: type[nn.Module]) -> type[nn.Module]:
    """Return the faster subclass of a class, or the class if it has none."""
    _load()
    return _FASTER.get(module, module)


def traceable_class(module: type[nn.Module]) -> type[nn.Module]:
    """Return the faster subclass if it has no own derivatives (``is_traceable``), or the class."""
    fast = fast_class(module)
    return fast if getattr(fast, "is_traceable", False) else module


@cache
def _load() -> None:
    for name in ("gated", "normalisers", "pair_scores"):
        import_module(f"{__name__}.{name}")


def pieces(scores: Float[Tensor, "p q k"], numbers: int = 1) -> list[tuple[slice, slice]]:
    """Return slices of the planes (p) and rows (q) of each tile of scores.

    A tile has at most ``TILE_NUMBERS`` numbers if a computation stores ``numbers`` for each score.
    """
    limit = TILE_NUMBERS["cpu" if scores.device.type == "cpu" else "other"] // numbers
    planes, rows, columns = scores.shape
    height = max(1, min(rows, limit // columns))
    depth = max(1, limit // (height * columns))
    return [
        (slice(plane, plane + depth), slice(row, row + height))
        for plane in range(0, planes, depth)
        for row in range(0, rows, height)
    ]


def computed_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type in which matrix products of a tensor are computed."""
    device = tensor.device.type
    if tensor.dtype == torch.float64 or not torch.amp.is_autocast_available(device):
        return tensor.dtype
    is_cast = torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if is_cast else tensor.dtype
