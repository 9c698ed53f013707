"""Tiles of scores for sums over pairs.

A piece is a tile of the scores that fits a core's cache.
"""

from __future__ import annotations

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

PIECE: Final = {"cpu": 2**17, "other": 2**24}
"""Numbers per tile. On a CPU a tile has 512 KiB, so that three fit a second-level cache; on other
devices large tiles save kernel launches.
"""


def pieces(scores: Float[Tensor, "p q k"], numbers: int = 1) -> list[tuple[slice, slice]]:
    """The slices of planes and rows of each tile, if each pair takes ``numbers`` numbers."""
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
