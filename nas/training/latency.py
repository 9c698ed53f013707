"""How long a trained model's attention layers take for one image."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import nn

    from nas.tasks.backbone import Backbone

REPEATS: Final = 15


@torch.no_grad()
def attention_latency_ms(model: Backbone, *, tokens: int, dim: int) -> float:
    """Milliseconds of one forward pass, batch 1, float32, summed over the attention layers.

    The median of several passes on the model's device, so that one interruption does not count.
    Unlike every other objective it is measured: it changes with the machine and a little from
    time to time.
    """
    device = model.positions.device
    x = torch.zeros(1, tokens, dim, device=device)
    blocks = model.attentions()
    model.eval()
    _pass_ms(blocks, x)
    return statistics.median(_pass_ms(blocks, x) for _ in range(REPEATS))


def _pass_ms(blocks: list[nn.Module], x: torch.Tensor) -> float:
    _wait(x.device)
    start = time.perf_counter()
    for block in blocks:
        block(x)
    _wait(x.device)
    return 1000.0 * (time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
