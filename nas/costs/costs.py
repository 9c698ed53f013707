"""The registry of costs: numbers of a mechanism that a search can minimise without training.

Each cost is one entry of ``COSTS``: its name, unit, description, title and formula. Importing this
module does not import torch; an entry imports its dependencies when it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nas.common.registry import Registry
from nas.costs.context import CostContext, summed_layers
from nas.genome import ALL, Genome, ModelSizes

if TYPE_CHECKING:
    from nas.compiler import Plan, ResolvedGenome


@dataclass(frozen=True)
class CostMeasure:
    """A cost: its name, its description, and the function that computes it."""

    name: str
    unit: str
    about: str
    of: Callable[[ResolvedGenome, CostContext], float]  # summed over the model's attention layers
    title: str = ""  # the column header; by default the name with spaces
    noun: str = ""  # the word for the cost in sentences; by default the title
    needs_calibration: bool = False  # is computed from measured unit times
    is_default: bool = False  # is computed and shown by default
    is_size: bool = False  # measures a mechanism's size, by which controls are matched
    is_counted: bool = False  # ``nas cost`` prints it, for one attention block


COSTS: Registry[CostMeasure] = Registry("cost", "nas.costs")


def costs_of(
    resolved: ResolvedGenome, context: CostContext, names: Iterable[str] | None = None
) -> dict[str, float]:
    """Return the costs of a genome, resolved at the context's sizes, by name.

    Args:
        names: names of costs; by default the costs that ``default_costs`` returns.

    Raises:
        ConfigError: a cost is unknown, or needs unit times that were not measured in this context.
        ViolationError: the genome does not type-check.
    """
    names = default_costs() if names is None else names
    return {name: float(COSTS[name].of(resolved, context)) for name in names}


def default_costs(is_calibrated: bool = False) -> tuple[str, ...]:
    """Return the default costs, and if ``is_calibrated`` also those that need a calibration."""
    costs = COSTS.registered.values()
    return tuple(c.name for c in costs if c.is_default and c.needs_calibration <= is_calibrated)


def size_costs() -> tuple[str, ...]:
    """Return the names of the costs that measure the size of a mechanism."""
    return tuple(cost.name for cost in COSTS.registered.values() if cost.is_size)


def need_calibration(names: Iterable[str]) -> bool:
    """Return whether one of these objectives is a cost that needs a calibration."""
    return any(name in COSTS and COSTS[name].needs_calibration for name in names)


def cost_title(name: str) -> str:
    """Return a cost's column header; the name with spaces if no cost of this name is registered.

    The function does not import plug-ins.
    """
    cost = COSTS.registered.get(name)
    return (cost.title if cost else "") or name.replace("_", " ")


def cost_noun(name: str) -> str:
    """Return the word for a cost in sentences; by default its title."""
    cost = COSTS.registered.get(name)
    return (cost.noun if cost else "") or cost_title(name)


@dataclass(frozen=True)
class Cost:
    """The counted costs of one attention block at batch size 1, as ``values`` and as attributes."""

    values: Mapping[str, int]

    def __getattr__(self, name: str) -> int:
        if name == "values" or name not in self.values:
            raise AttributeError(name)
        return self.values[name]

    def to_dict(self) -> dict[str, int]:
        """Return the costs by name, as ``nas cost --json`` prints them."""
        return dict(self.values)


def attention_cost(
    genome: Genome,
    *,
    dim: int,
    heads: int,
    tokens: int,
    qkv_bias: bool = False,
    names: Iterable[str] | None = None,
) -> Cost:
    """Count the costs of one attention block with ``dim`` features and ``heads`` heads.

    Args:
        names: names of costs; by default all costs that can be counted for one block.

    Raises:
        GenomeError, ViolationError: the mechanism does not exist at this size.
        NasError: the mechanism has an operation without a counting rule.
    """
    from nas.compiler import make_plan, resolve

    context = CostContext(ModelSizes(dim, heads, 1, tokens), qkv_bias)
    make_plan(genome)  # raises for ill-typed genomes
    resolved = resolve(replace(genome, placement=ALL), context.sizes, is_causal=None)
    if names is None:
        names = [cost.name for cost in COSTS.registered.values() if cost.is_counted]
    return Cost({name: math.ceil(COSTS[name].of(resolved, context)) for name in names})


LayerCost = Callable[["Plan", CostContext], float]


def _layer_cost(
    name: str, unit: str, about: str, *, is_counted: bool = True, **options: Any
) -> Callable[[LayerCost], LayerCost]:
    """Return a decorator that registers a cost by the function that computes it for one layer."""

    def register(function: LayerCost) -> LayerCost:
        def of(resolved: ResolvedGenome, context: CostContext) -> float:
            return summed_layers(resolved, lambda layer: function(layer.plan, context))

        measure = CostMeasure(name, unit, about, of, is_counted=is_counted, **options)
        COSTS.register(name)(measure)
        return function

    return register


@_layer_cost(
    "macs",
    "MACs",
    "multiply-adds of an example, as they run",
    title="MACs",
    is_default=True,
    is_size=True,
)
def _macs(plan: Plan, context: CostContext) -> float:
    from nas.costs.profile import computed_macs

    return computed_macs(plan, context.sizes, context.is_causal).all


@_layer_cost(
    "attention_macs",
    "MACs",
    "multiply-adds of scores and aggregation alone",
    title="MACs of scores and aggregation",
)
def _attention_macs(plan: Plan, context: CostContext) -> float:
    from nas.costs.profile import computed_macs

    computed = computed_macs(plan, context.sizes, context.is_causal)
    return computed.all - computed.tokens


@_layer_cost("elementwise", "elements", "elements that pointwise operations touch")
def _elementwise(plan: Plan, context: CostContext) -> float:
    from nas.costs.profile import elementwise

    return elementwise(plan, context.sizes, context.qkv_bias)


@_layer_cost("params", "parameters", "learned numbers", is_default=True, is_size=True)
def _params(plan: Plan, context: CostContext) -> float:
    from nas.costs.profile import count_parameters

    return count_parameters(plan, context.sizes.dim, context.sizes.heads, context.qkv_bias)


@_layer_cost(
    "kv_cache_bytes_per_token",
    "bytes",
    "bytes that decoding holds in all layers for each token of its context, at 16 bits a number",
    title="KV B/token",
    noun="KV cache",
    is_default=True,
)
def _kv_cache(plan: Plan, context: CostContext) -> float:
    from nas.costs.memory import kv_cache_bytes_per_token

    return kv_cache_bytes_per_token(plan, context.decoded)


@_layer_cost(
    "seed_compatible_macs",
    "MACs",
    "multiply-adds that plain fvcore counts for the published encoder layer",
)
def _seed_compatible(plan: Plan, context: CostContext) -> float:
    from nas.costs.profile import seed_compatible_macs

    return seed_compatible_macs(plan, context.sizes, context.qkv_bias)


@_layer_cost(
    "time_ms",
    "ms",
    "predicted milliseconds of one training batch: all layers, forward and backward",
    noun="time",
    needs_calibration=True,
    is_default=True,
    is_counted=False,
)
def _time_ms(plan: Plan, context: CostContext) -> float:
    from nas.costs.timing.work import layer_ms

    return layer_ms(plan, context)
