"""How much work a training is: what orders trainings, and what must be countable at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nas.genome import Genome
    from nas.tasks import Task


def attention_macs(genome: Genome, task: Task) -> float:
    """Multiply-adds of all attention layers for one example.

    Raises:
        NasError: the mechanism does not exist at the task's sizes, or uses an operation whose cost
            nobody has stated: what cannot be counted is not worth a training.
    """
    from nas.costs import backbone_cost

    dim, heads, depth, tokens = task.sizes
    cost = backbone_cost(
        genome, dim=dim, heads=heads, depth=depth, tokens=tokens, qkv_bias=task.qkv_bias
    )
    return float(cost["macs"])
