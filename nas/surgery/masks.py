"""What a host does to scores, as a mechanism takes it: masks, scales, softcaps and biases."""

from __future__ import annotations

import torch
from torch import Tensor


def split_mask(mask: Tensor | None, is_strict: bool = False) -> tuple[Tensor | None, Tensor | None]:
    """A mask as torch takes it, as (True where allowed, added to scores), None where it says none.

    A bool mask is True where attention is allowed; a float mask is added, and its -inf hide.

    Args:
        is_strict: whether the smallest number of the mask's type hides, too.
    """
    if mask is None or mask.dtype == torch.bool:
        return mask, None
    hidden = mask <= torch.finfo(mask.dtype).min if is_strict else mask.isneginf()
    return ~hidden, mask.masked_fill(hidden, 0.0)


def scale_queries(q: Tensor, scale: float) -> Tensor:
    """Queries whose scores, divided by sqrt(w), are q·k times ``scale``."""
    factor = float(scale * q.shape[-1] ** 0.5)
    return q if abs(factor - 1.0) < 1e-12 else q * factor


def adjusted(scores: Tensor, bias: Tensor | None, softcap: float | None) -> Tensor:
    """Scores (b, h, n, m) bounded and with a bias, pooled where there are fewer heads of them."""
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is None:
        return scores
    if bias.dim() == 4 and bias.shape[1] not in (1, scores.shape[1]):
        bias = bias.reshape(bias.shape[0], scores.shape[1], -1, *bias.shape[2:]).mean(dim=2)
    return scores + bias
