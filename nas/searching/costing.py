"""What a search asks of normal forms, names and costs, at its task's sizes."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nas.genome import Genome, ModelSizes
    from nas.tasks.base import Task

IS_READY: Final = importlib.util.find_spec("nas.costs") is not None
TIME: Final = "time_ms"


@dataclass(frozen=True)
class Costing:
    """Counts and predictions of all attention layers of a backbone.

    Attributes:
        names: of the objectives; costs among them are given beside those given always.
        calibration: unit times behind ``time_ms``; empty where no objective asks.
    """

    sizes: ModelSizes
    qkv_bias: bool
    is_causal: bool
    names: tuple[str, ...]
    calibration: Mapping[str, Any]

    @classmethod
    def of(cls, task: Task, names: Sequence[str], calibration: Mapping[str, Any]) -> Costing:
        """What a task's candidates cost."""
        return cls(task.sizes, task.qkv_bias, task.is_causal, tuple(names), calibration)

    def __call__(self, genome: Genome) -> dict[str, float]:
        """The costs of a genome in normal form, by name.

        Raises:
            NasError: it does not exist at these sizes.
        """
        if not IS_READY:
            return _todays(self, genome)
        from nas.costs import DEFAULT_COSTS, Setting, costs_of

        asked = [name for name in self.names if name in cost_units()]
        setting = Setting(self.sizes, self.qkv_bias, self.is_causal, self.calibration)
        return costs_of(genome, setting, dict.fromkeys([*DEFAULT_COSTS, *asked]))


def cost_units() -> dict[str, tuple[str, str]]:
    """By name, the unit of a cost and what it is."""
    if not IS_READY:
        return {name: ("MAC" if name == "macs" else "count", name) for name in ("macs", "params")}
    from nas.costs import COSTS

    return {name: (COSTS.get(name).unit, COSTS.get(name).about) for name in COSTS.names()}


def canonicalise(genome: Genome, sizes: ModelSizes) -> Genome:
    """The normal form at these sizes."""
    from nas import canonical

    form: Any = canonical.canonicalise
    found: Genome = form(genome, sizes) if IS_READY else form(genome)
    return found


def resolved_digest(genome: Genome, sizes: ModelSizes) -> str:
    """The name at these sizes."""
    from nas import canonical

    name: Any = canonical.resolved_digest
    if IS_READY:
        return str(name(genome, sizes))
    return str(name(genome, dim=sizes.dim, heads=sizes.heads, depth=sizes.depth))


def _todays(costing: Costing, genome: Genome) -> dict[str, float]:
    from nas.cost import backbone_cost

    sizes: Any = {**costing.sizes._asdict(), "qkv_bias": costing.qkv_bias}
    return {name: float(value) for name, value in backbone_cost(genome, **sizes).items()}
