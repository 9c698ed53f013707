"""Functions that plain sources call and exported files copy."""

from __future__ import annotations

import torch
from torch import Tensor


def visible_mean(values: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of the values that each query sees; zeros where it sees none."""
    if mask is None:
        return values.mean(dim=2, keepdim=True).expand_as(values)
    weights = mask.to(values.dtype) / mask.sum(dim=-1, keepdim=True).clamp(min=1)
    return (weights @ values).expand_as(values)


def linear_attention(
    query: Tensor, key: Tensor, values: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """query·key^T·values over the number of visible keys: linear in the tokens, if masks allow."""
    query = query * scale
    if mask is None or mask.shape[-2] == 1:
        kept = torch.ones_like(key[:1, :1, :, :1]) if mask is None else mask.mT.to(values.dtype)
        return query @ (key.mT @ (values * kept)) / kept.sum(dim=2, keepdim=True).clamp(min=1)
    weights = (query @ key.mT).masked_fill(~mask, 0.0)
    return (weights / mask.sum(dim=-1, keepdim=True).clamp(min=1)) @ values
