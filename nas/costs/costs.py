"""The registry of costs: numbers of a mechanism that a search can minimise without training.

Each cost is one entry of ``COSTS``: its name, unit, description, title and formula. Importing this
module does not import torch; an entry imports its dependencies when it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas.common.registry import Registry
from nas.costs.context import CostContext, summed_layers
from nas.genome import Genome, ModelSizes

if TYPE_CHECKING:
    from nas.compiler import Plan, ResolvedGenome


@dataclass(frozen=True)
class CostMeasure:
    """A cost of a genome, summed over all attention layers of a backbone.

    Attributes:
        of: computes the cost from a resolved genome and the context of its sizes.
        title: column header; by default the name with spaces.
        noun: word for the cost in sentences; by default the title.
        needs_calibration: whether it is computed from measured unit times.
        is_default: whether it is computed and shown by default.
        is_size: whether it measures the size of a mechanism; controls are matched by such costs.
        is_counted: whether ``nas cost`` prints it, for one block.
    """

    name: str
    unit: str
    about: str
    of: Callable[[ResolvedGenome, CostContext], float]
    title: str = ""
    noun: str = ""
    needs_calibration: bool = False
    is_default: bool = False
    is_size: bool = False
    is_counted: bool = False


COSTS: Registry[CostMeasure] = Registry("cost", "nas.costs")


def costs_of(
    resolved: ResolvedGenome, context: CostContext, names: Iterable[str] | None = None
) -> dict[str, float]:
    """The costs of a genome by name, by default those of ``default_costs``.

    Args:
        resolved: the genome, resolved at the context's sizes.

    Raises:
        ConfigError: unknown cost, or a cost needs another calibration.
        ViolationError: the genome does not type-check.
    """
    names = default_costs() if names is None else names
    return {name: float(COSTS.get(name).of(resolved, context)) for name in names}


def default_costs(is_calibrated: bool = False) -> tuple[str, ...]:
    """The names of the default costs; with ``is_calibrated`` including predicted times."""
    costs = COSTS.registered.values()
    return tuple(c.name for c in costs if c.is_default and c.needs_calibration <= is_calibrated)


def size_costs() -> tuple[str, ...]:
    """The names of the costs that measure the size of a mechanism."""
    return tuple(cost.name for cost in COSTS.registered.values() if cost.is_size)


def need_calibration(names: Iterable[str]) -> bool:
    """Whether a cost among ``names`` needs unit times; other objectives do not."""
    return any(name in COSTS and COSTS.get(name).needs_calibration for name in names)


def cost_title(name: str) -> str:
    """The title of a cost; for other names the name with spaces. Loads no plug-in."""
    cost = COSTS.registered.get(name)
    return (cost.title if cost else "") or name.replace("_", " ")


def cost_noun(name: str) -> str:
    """The word for a cost in a sentence."""
    cost = COSTS.registered.get(name)
    return (cost.noun if cost else "") or cost_title(name)


@dataclass(frozen=True)
class Cost:
    """Counted costs of one attention block at batch 1, by name and as attributes."""

    values: Mapping[str, int]

    def __getattr__(self, name: str) -> int:
        if name == "values" or name not in self.values:
            raise AttributeError(name)
        return self.values[name]

    def to_dict(self) -> dict[str, int]:
        """The JSON of ``nas cost``."""
        return dict(self.values)


def attention_cost(
    genome: Genome, *, dim: int, heads: int, tokens: int, qkv_bias: bool = False
) -> Cost:
    """Count one attention block of a backbone with ``dim`` channels and ``heads`` heads.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        NasError: there is no cost rule for an operation in it.
    """
    from nas.compiler import make_plan, resolve

    context = CostContext(ModelSizes(dim, heads, 1, tokens), qkv_bias)
    make_plan(genome)  # raises for ill-typed genomes
    resolved = resolve(genome, context.sizes, is_causal=None)
    counted = (cost for cost in COSTS.registered.values() if cost.is_counted)
    return Cost({cost.name: math.ceil(cost.of(resolved, context)) for cost in counted})


# Computes the cost of one layer from its plan and the context.
Measure = Callable[["Plan", CostContext], float]


def _register(measure: CostMeasure) -> None:
    COSTS.register(measure.name)(measure)


def _summed(measure: Measure) -> Callable[[ResolvedGenome, CostContext], float]:
    """The cost of all layers from the cost of one."""

    def of(resolved: ResolvedGenome, context: CostContext) -> float:
        return summed_layers(resolved, lambda layer: measure(layer.plan, context))

    return of


def _macs(plan: Plan, context: CostContext) -> float:
    from nas.costs.macs import computed_macs

    return computed_macs(plan, context.sizes, context.is_causal).all


def _attention_macs(plan: Plan, context: CostContext) -> float:
    from nas.costs.macs import computed_macs

    computed = computed_macs(plan, context.sizes, context.is_causal)
    return computed.all - computed.tokens


def _elementwise(plan: Plan, context: CostContext) -> float:
    from nas.costs.block import elementwise

    return elementwise(plan, context.sizes, context.qkv_bias)


def _params(plan: Plan, context: CostContext) -> float:
    from nas.costs.counting import count_parameters

    return count_parameters(plan, context.sizes.dim, context.sizes.heads, context.qkv_bias)


def _kv_cache(plan: Plan, context: CostContext) -> float:
    from nas.costs.decoding.memory import kv_cache_bytes_per_token

    return kv_cache_bytes_per_token(plan, context.decoded)


def _seed_compatible(plan: Plan, context: CostContext) -> float:
    from nas.costs.block import seed_compatible_macs

    return seed_compatible_macs(plan, context.sizes, context.qkv_bias)


def _time_ms(resolved: ResolvedGenome, context: CostContext) -> float:
    from nas.costs.timing.calibration import time_ms

    return time_ms(resolved, context)


def _decode_ms(resolved: ResolvedGenome, context: CostContext) -> float:
    from nas.costs.timing.calibration import decode_ms

    return decode_ms(resolved, context)


_register(
    CostMeasure(
        "macs",
        "MACs",
        "multiply-adds of an example, as they run",
        _summed(_macs),
        title="MACs",
        is_default=True,
        is_size=True,
        is_counted=True,
    )
)
_register(
    CostMeasure(
        "attention_macs",
        "MACs",
        "multiply-adds of scores and aggregation alone",
        _summed(_attention_macs),
        title="MACs of scores and aggregation",
        is_counted=True,
    )
)
_register(
    CostMeasure(
        "elementwise",
        "elements",
        "elements that pointwise operations touch",
        _summed(_elementwise),
        is_counted=True,
    )
)
_register(
    CostMeasure(
        "params",
        "parameters",
        "learned numbers",
        _summed(_params),
        is_default=True,
        is_size=True,
        is_counted=True,
    )
)
_register(
    CostMeasure(
        "kv_cache_bytes_per_token",
        "bytes",
        "bytes that decoding holds for each token of its context, at 16 bits a number",
        _summed(_kv_cache),
        title="KV B/token",
        noun="KV cache",
        is_default=True,
        is_counted=True,
    )
)
_register(
    CostMeasure(
        "seed_compatible_macs",
        "MACs",
        "multiply-adds that plain fvcore counts for the published encoder layer",
        _summed(_seed_compatible),
        is_counted=True,
    )
)
_register(
    CostMeasure(
        "time_ms",
        "ms",
        "predicted milliseconds of one training batch: all layers, forward and backward",
        _time_ms,
        noun="time",
        needs_calibration=True,
        is_default=True,
    )
)
_register(
    CostMeasure(
        "decode_ms",
        "ms",
        "predicted milliseconds to decode one token after its context: all layers, one sequence",
        _decode_ms,
        noun="decoding time",
        needs_calibration=True,
    )
)
