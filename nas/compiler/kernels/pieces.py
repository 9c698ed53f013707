"""Tiles of score planes for sums over pairs, and when planes are not tiled.

A piece is as much of the scores as stays in a core's cache while operations pass over it.
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

PIECE: Final = {"cpu": 2**17, "other": 2**24}
"""How many numbers are computed at a time: 512 KiB, three of which fit a core's second-level cache.

Elsewhere there is no such cache, but starts of kernels to save: as much as memory bears.
"""


def pieces(scores: Float[Tensor, "p q k"], numbers: int = 1) -> list[tuple[slice, slice]]:
    """Planes and rows of the scores, piece by piece, where a pair takes so many ``numbers``."""
    limit = PIECE["cpu" if scores.device.type == "cpu" else "other"] // numbers
    planes, rows, columns = scores.shape
    height = max(1, min(rows, limit // columns))
    depth = max(1, limit // (height * columns))
    return [
        (slice(plane, plane + depth), slice(row, row + height))
        for plane in range(0, planes, depth)
        for row in range(0, rows, height)
    ]


def is_traced() -> bool:
    """Whether torch traces or compiles the call."""
    return bool(torch.jit.is_tracing() or torch.compiler.is_compiling())  # type: ignore[attr-defined]
