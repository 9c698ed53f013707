"""Check before training that an attention block depends on its input, and only on allowed input.

A legal mechanism may be constant: ``relu_squared`` of a negative distance is zero for any tokens.
Training it would cost as much as training a good mechanism, without information.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from nas.genome import ModelSizes

SPREAD: Final = 0.1
"""Deviation of the noise added to weights, since the input of a zero weight has no effect."""
TOLERANCE: Final = 1e-5
"""Outputs are equal if they differ by no more than this fraction of the largest, in float32."""


class Constant(Exception):  # noqa: N818 - an outcome, not a fault
    """The block gives the same output for every input."""


class Leak(Exception):  # noqa: N818 - an outcome, not a fault
    """An output depends on later tokens of a causal task, or on other examples."""


@torch.no_grad()
def probe(block: nn.Module, sizes: ModelSizes, *, is_causal: bool) -> None:
    """Run a copy of an attention block on random tokens, drawn from torch's global generator.

    Raises:
        Constant: the output does not depend on the input.
        Leak: the block mixes the examples of a batch, or should be causal and is not.
    """
    block = copy.deepcopy(block).float().eval()
    for weight in block.parameters():
        weight.add_(SPREAD * torch.randn_like(weight))
    options = {"is_causal": True} if is_causal else {}
    x, other = torch.randn(2, 1, sizes.tokens, sizes.dim)
    out, batch = block(x, **options), block(torch.cat([x, other]), **options)
    if not (out.isfinite().all() and batch.isfinite().all()):
        return  # the training will diverge
    if not _is_same(out, batch[:1]):
        raise Leak("the output for an example depends on other examples of its batch")
    if _is_same(out, batch[1:]):
        raise Constant("the mechanism gives the same output for every input")
    if is_causal:
        half = sizes.tokens // 2
        changed = torch.cat([x[:, :half], other[:, half:]], dim=1)
        if not _is_same(out[:, :half], block(changed, **options)[:, :half]):
            raise Leak("the output for a token depends on later tokens, in a causal task")


def _is_same(output: Tensor, other: Tensor) -> bool:
    return bool((output - other).abs().max() <= TOLERANCE * output.abs().max())
