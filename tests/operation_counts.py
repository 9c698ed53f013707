"""Twice the multiply-adds of operations that torch's FlopCounterMode does not count."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from nas.training.user_check import UNCOUNTED


def _addcmul(*shapes: Any, out_shape: tuple[int, ...] = (), **rest: Any) -> int:
    return 2 * math.prod(out_shape)


def _solve(left: Any, right: Any, *args: Any, out_shape: Any = (), **rest: Any) -> int:
    return right[-2] * (right[-2] - 1) * math.prod(right) // right[-2]  # unit diagonal


def _solve_square(left: tuple[int, ...], *shapes: Any, **rest: Any) -> int:
    *many, width, _ = left
    return 2 * math.prod(many) * (width * (width**2 - 1) // 3 + width**2)  # elimination


OPERATION_COUNTS: Final[dict[Any, Any]] = {
    torch.ops.aten.addcmul: _addcmul,
    torch.ops.aten.linalg_solve_triangular: _solve,
    torch.ops.aten._linalg_solve_ex: _solve_square,
    **UNCOUNTED,
}
