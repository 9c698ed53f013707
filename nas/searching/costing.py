"""Normal form, digests and costs as a search asks for them, until they have these signatures."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nas.genome import Genome, ModelSizes
    from nas.tasks.base import Task

IS_READY = importlib.util.find_spec("nas.costs") is not None
TIME = "time_ms"


def canonicalise(genome: Genome, sizes: ModelSizes) -> Genome:
    from nas import canonical

    form: Any = canonical.canonicalise
    return form(genome, sizes) if IS_READY else form(genome)


def resolved_digest(genome: Genome, sizes: ModelSizes) -> str:
    from nas import canonical

    form: Any = canonical.resolved_digest
    if IS_READY:
        return form(genome, sizes)
    return form(genome, dim=sizes.dim, heads=sizes.heads, depth=sizes.depth)


def cost_units() -> dict[str, tuple[str, str]]:
    """By name, the unit of a cost and what it is."""
    if IS_READY:
        from nas.costs import COSTS

        return {name: (COSTS.get(name).unit, COSTS.get(name).about) for name in COSTS.names()}
    return {"macs": ("MAC", "multiply-adds of all attention layers"), "params": ("count", "-")}


def costs_under(
    task: Task, calibration: Mapping[str, Any]
) -> Callable[[Genome], Mapping[str, float]]:
    """What a genome costs under a task: all that is counted, and calibrated time."""
    if not IS_READY:
        from nas.cost import backbone_cost

        s = task.sizes
        return lambda genome: {
            name: float(value)
            for name, value in backbone_cost(
                genome, dim=s.dim, heads=s.heads, depth=s.depth, tokens=s.tokens,
                qkv_bias=task.qkv_bias,
            ).items()
        }  # fmt: skip
    from nas.costs import Setting, costs_of

    setting = Setting(task.sizes, task.qkv_bias, task.is_causal, calibration)
    names = tuple(name for name in cost_units() if name != TIME or calibration)
    return lambda genome: costs_of(genome, setting, names)
