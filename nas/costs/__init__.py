"""The registry of costs: numbers of a mechanism that a search can minimise without training.

A cost is an entry of ``COSTS``: its name, unit, description, title and function. Importing this
module does not import torch; the function of a cost is imported when the cost is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictInt

from nas.common.config import Frozen, parse_model
from nas.common.errors import ConfigError
from nas.common.registry import Registry
from nas.genome import ALL, Genome, ModelSizes

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome


Time = Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)]


class Calibration(Frozen):
    """Unit times in milliseconds by kind of work, with the conditions of their measurement."""

    version: Literal[1] = 1
    hardware: str  # name of the processor or GPU
    torch: str  # version
    device: str
    precision: str  # of matrix products, ``float32`` or ``bfloat16``
    batch: Annotated[StrictInt, Field(ge=1)]
    is_causal: StrictBool
    qkv_bias: StrictBool
    dim: StrictInt
    heads: StrictInt
    tokens: StrictInt
    units: dict[str, Time]  # of a forward and backward pass


@dataclass(frozen=True)
class CostContext:
    """The model and machine for which costs are computed."""

    sizes: ModelSizes
    qkv_bias: bool = False
    is_causal: bool = False
    calibration: Mapping[str, Any] = field(default_factory=dict)  # nas.costs.timing.calibrate
    cached_tokens: int | None = None  # for costs of decoding; None for ``sizes.tokens``

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """Return a genome in normal form with these sizes, see ``nas.compiler.resolve``."""
        from nas.compiler import resolve

        return resolve(genome, self.sizes, self.is_causal)

    @cached_property
    def unit_times(self) -> Calibration:
        """The valid ``calibration``; raise ConfigError if it is invalid or of another context."""
        calibration = parse_model(dict(self.calibration), Calibration, "calibration")
        dim, heads, _, tokens = self.sizes
        calls = {"is_causal": self.is_causal, "qkv_bias": self.qkv_bias}
        for name, value in ({"dim": dim, "heads": heads, "tokens": tokens} | calls).items():
            if getattr(calibration, name) != value:
                raise ConfigError(
                    f"calibration, {name}: measured with {getattr(calibration, name)}, asked with "
                    f"{value}; expected what nas.costs.timing.calibrate measured in this context."
                )
        return calibration


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
    """Return costs of a genome by name, by default those that ``default_costs`` returns.

    ConfigError is raised if a cost is unknown, or needs unit times that were not measured in this
    context; ViolationError if the genome does not type-check.
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
    """Return a cost's column header; the name with spaces if no such cost is registered so far."""
    cost = COSTS.registered.get(name)
    return (cost.title if cost else "") or name.replace("_", " ")


def cost_noun(name: str) -> str:
    """Return the word for a cost in sentences; by default its title."""
    cost = COSTS.registered.get(name)
    return (cost.noun if cost else "") or cost_title(name)


def attention_cost(
    genome: Genome,
    *,
    dim: int,
    heads: int,
    tokens: int,
    qkv_bias: bool = False,
    names: Iterable[str] | None = None,
) -> dict[str, int]:
    """Return costs of one attention block at batch size 1, by name; by default all that count one.

    GenomeError or ViolationError is raised if the mechanism does not exist at this size, NasError
    if it has an operation without a counting rule.
    """
    from nas.compiler import make_plan, resolve

    context = CostContext(ModelSizes(dim, heads, 1, tokens), qkv_bias)
    make_plan(genome)  # raises for ill-typed genomes
    resolved = resolve(replace(genome, placement=ALL), context.sizes, is_causal=None)
    if names is None:
        names = [cost.name for cost in COSTS.registered.values() if cost.is_counted]
    return {name: math.ceil(COSTS[name].of(resolved, context)) for name in names}


def _register(
    name: str, function: str, unit: str, about: str, *, is_counted: bool = True, **options: Any
) -> None:
    """Register a cost by its function of the plan of one layer, such as "profile:macs"."""
    module, _, attribute = function.partition(":")

    def of(resolved: ResolvedGenome, context: CostContext) -> float:
        of_layer = getattr(import_module(f"nas.costs.{module}"), attribute)
        depth = resolved.sizes.depth
        count = len(resolved.genome.placement.layers(depth))
        total: float = count * of_layer(resolved.plan, context)
        if count < depth:
            from nas.compiler import rest_attention

            total += (depth - count) * of_layer(rest_attention(resolved).plan, context)
        return total

    COSTS.register(name)(CostMeasure(name, unit, about, of, is_counted=is_counted, **options))


_register(
    "macs",
    "profile:macs",
    "MACs",
    "multiply-adds of an example, as they run",
    title="MACs",
    is_default=True,
    is_size=True,
)
_register(
    "attention_macs",
    "profile:attention_macs",
    "MACs",
    "multiply-adds of scores and aggregation alone",
    title="MACs of scores and aggregation",
)
_register(
    "elementwise", "profile:elementwise", "elements", "elements that pointwise operations touch"
)
_register(
    "params", "profile:params", "parameters", "learned numbers", is_default=True, is_size=True
)
_register(
    "kv_cache_bytes_per_token",
    "memory:kv_cache_bytes_per_token",
    "bytes",
    "bytes that decoding holds in all layers for each token of its context, at 16 bits a number",
    title="KV B/token",
    noun="KV cache",
    is_default=True,
)
_register(
    "seed_compatible_macs",
    "profile:seed_compatible_macs",
    "MACs",
    "multiply-adds that plain fvcore counts for the published encoder layer",
)
_register(
    "time_ms",
    "timing.work:layer_ms",
    "ms",
    "predicted milliseconds of one training batch: all layers, forward and backward",
    noun="time",
    needs_calibration=True,
    is_default=True,
    is_counted=False,
)
