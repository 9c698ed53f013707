"""What the weights of a block are indifferent to, found by computing rather than from a list.

Two facts decide where a bias may go when matrices are merged: whether a number added to all scores
of a query changes its weights, and whether a query's weights sum to one. Both are looked at on the
block itself, in float64 and on random tokens of several sizes (weights that large scores saturate
sum to one when they need not), so that they hold for any normaliser with whatever adjusts its
scores or weights.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from nas.compiler.plan import Step
from nas.primitives import Role
from nas.surgery.affine import Body

_TOKENS: Final = 7
_SHIFT: Final = 3.0
_TOLERANCE: Final = 1e-9
_SIZES: Final = (1e-3, 0.1, 1.0, 10.0)


def ignores_shifts(body: Body, score: Step) -> bool:
    """Whether a number added to all scores of a query leaves its weights as they are."""
    generator = torch.Generator().manual_seed(1)
    shift = _SHIFT * torch.randn(2, 1, _TOKENS, 1, generator=generator, dtype=torch.float64)
    pairs = (
        pair
        for size in _SIZES
        for pair in zip(_weights(body, size), _weights(body, size, score, shift), strict=True)
    )
    return all(torch.allclose(a, b, rtol=0.0, atol=_TOLERANCE) for a, b in pairs)


def sums_to_one(body: Body) -> bool:
    """Whether the weights that the last aggregation reads sum to one for every query."""
    sums = torch.stack([_weights(body, size)[-1].sum(dim=-1) for size in _SIZES])
    return torch.allclose(sums, torch.ones_like(sums), rtol=0.0, atol=_TOLERANCE)


def _weights(
    body: Body, size: float, score: Step | None = None, shift: Tensor | None = None
) -> list[Tensor]:
    """What the aggregations read as weights, with a shift added to the outcome of a score."""
    twin = body.reference()
    seen: list[Tensor] = []

    def keep(module: Any, operands: tuple[Tensor, ...]) -> None:
        seen.append(operands[0])

    for step in body.plan.steps:
        if step.role is Role.AGGREGATE:
            twin.get_submodule(step.module).register_forward_pre_hook(keep)
    if score is not None:
        twin.get_submodule(score.module).register_forward_hook(lambda *call: call[-1] + shift)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        tokens = torch.randn(2, _TOKENS, body.dim, generator=generator, dtype=torch.float64)
        twin(size * tokens)
    return seen
