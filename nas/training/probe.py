"""Whether an attention block says anything about its input: asked before it is trained.

A mechanism may be legal and constant: ``relu_squared`` of a negative distance is zero whatever the
tokens are. Training one costs as much as training a good one, and teaches nothing.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from nas.genome import ModelSizes

SPREAD: Final = 0.1
"""Deviation of the noise on weights: one that starts at zero may hide what it lets through."""
LEAST: Final = 1e-5
"""Of the output's size, in float32: two outputs that differ by less are the same."""


class Constant(Exception):  # noqa: N818 - an outcome, not a fault
    """The block gives the same whatever it is given."""


class Leak(Exception):  # noqa: N818 - an outcome, not a fault
    """A result depends on what it must not: later tokens of a causal task, or other examples."""


@torch.no_grad()
def probe(block: nn.Module, sizes: ModelSizes, *, is_causal: bool) -> None:
    """Run a copy of an attention block on random tokens; random numbers are torch's global ones.

    Raises:
        Constant: its output is zero, or does not depend on its input.
        Leak: it is to be causal and is not, or mixes the examples of a batch.
    """
    block = copy.deepcopy(block).float().eval()
    for weight in block.parameters():
        weight.add_(SPREAD * torch.randn_like(weight))
    options = {"is_causal": True} if is_causal else {}
    x, other = torch.randn(2, 1, sizes.tokens, sizes.dim)
    out, beside = block(x, **options), block(torch.cat([x, other]), **options)
    if not (out.isfinite().all() and beside.isfinite().all()):
        return  # training will say so
    if not _is_same(out, beside[:1]):
        raise Leak("the output for an example depends on other examples of its batch")
    if _is_same(out, beside[1:]):
        raise Constant("the mechanism gives the same output for every input")
    if is_causal:
        half = sizes.tokens // 2
        changed = torch.cat([x[:, :half], other[:, half:]], dim=1)
        if not _is_same(out[:, :half], block(changed, **options)[:, :half]):
            raise Leak("the output for a token depends on later tokens, in a causal task")


def _is_same(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= LEAST * one.abs().max())
