"""Costs of a module that has no genome: FLOPs counted while it runs, and times by the clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from nas.costs.timing.measuring import Passes, fastest, one_thread
from nas.genome import ModelSizes

MORE_ROUNDS_SECONDS: Final = 0.5  # after two rounds, no further round starts later


def _attention(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: Any, **__: Any
) -> int:
    *rows, width = query  # shapes of the operands: (batch, heads, tokens, width)
    return 2 * math.prod(rows) * key[-2] * (width + value[-1])


# FLOPs of operations that torch's counter leaves out: since torch 2.14, fused attention on CPUs.
UNCOUNTED: Final[dict[Any, Any]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention
}


def measured_costs(block: nn.Module, sizes: ModelSizes, *, is_causal: bool) -> dict[str, float]:
    """Return the costs ``macs``, for one sequence, and ``params`` of one layer.

    torch's FlopCounterMode counts two FLOPs for each multiply-add of matrix products, convolutions
    and fused attention. Other operations count as zero.
    """
    options = {"is_causal": True} if is_causal else {}
    counter = FlopCounterMode(display=False, custom_mapping=UNCOUNTED)
    with torch.no_grad(), counter:
        block(torch.zeros(1, sizes.tokens, sizes.dim), **options)
    parameters = sum(weight.numel() for weight in block.parameters())
    return {"macs": counter.get_total_flops() / 2, "params": float(parameters)}


def measured_ms(block: nn.Module, sizes: ModelSizes) -> float:
    """Return the milliseconds of a block's forward and backward pass on one sequence.

    The block runs on one thread of the CPU, in float32, without a causal mask.
    """
    with one_thread():
        passes = Passes(sizes, 1, precision="float32", device="cpu", is_causal=False)
        (seconds,) = fastest([partial(passes.seconds, passes.of(block))], MORE_ROUNDS_SECONDS)
    return 1000 * seconds
