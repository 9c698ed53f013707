"""A primitive with a state: an exponential moving average over the tokens."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nas.genome.primitives.base import Role, primitive
from nas.genome.primitives.tensors import Mask, Tokens, drop_padding


def continue_average(
    module: MovingAverage, state: Tensor | None, tokens: Tokens
) -> tuple[Tokens, Tensor]:
    """Return the averages after the average ``state`` of the token before, and the last."""
    share = torch.sigmoid(module.rate.to(tokens.dtype))
    age = torch.arange(1, tokens.shape[2] + 1, device=tokens.device)
    out = module(tokens) + (0.0 if state is None else share ** age[:, None] * state)
    return out, out[:, :, -1:].clone()


@primitive(
    "moving_average",
    "tokens: tokens[h,w] -> tokens[h,w]",
    role=Role.POSITION,
    notation="ema({tokens})",
    source="an example: where it comes from, with its equation",
    state=lambda sizes, params: sizes.heads * sizes.width,
    recur=continue_average,
)
class MovingAverage(nn.Module):
    """Each token mixed with the average of earlier tokens, with a learned rate for each head.

    out_t = a out_{t-1} + (1 - a) tokens_t, a = sigmoid(rate). Padding and the token before the
    first one count as zeros.
    """

    needs_all_tokens = True

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(heads, 1, 1))

    def forward(self, tokens: Tokens, mask: Mask = None) -> Tokens:
        share = torch.sigmoid(self.rate.to(tokens.dtype))
        place = torch.arange(tokens.shape[2], device=tokens.device)
        age = (place[:, None] - place).clamp(min=0)
        return ((1 - share) * share**age).tril() @ drop_padding(tokens, mask)
