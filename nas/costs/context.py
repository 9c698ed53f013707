"""The model and machine for which costs are computed, and sums over a model's layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictInt, field_validator

from nas.common.config import Frozen, parse_model
from nas.common.errors import ConfigError
from nas.genome import Genome, ModelSizes

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

    @field_validator("units")
    @classmethod
    def _some_work_takes_time(cls, value: dict[str, float]) -> dict[str, float]:
        if not any(value.values()):
            raise ValueError("no work takes any time")
        return value


@dataclass(frozen=True)
class CostContext:
    """The model and machine for which costs are computed."""

    sizes: ModelSizes
    qkv_bias: bool = False
    is_causal: bool = False
    calibration: Mapping[str, Any] = field(default_factory=dict)  # nas.costs.timing.calibrate
    cached_tokens: int | None = None  # for costs of decoding; None for ``sizes.tokens``

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """Return a genome in normal form (simplified, canonical order) with these sizes.

        Raises:
            GenomeError: the mechanism does not exist at these sizes.
        """
        from nas.compiler import resolve

        return resolve(genome, self.sizes, self.is_causal)

    @cached_property
    def unit_times(self) -> Calibration:
        """The validated ``calibration``.

        Raises:
            ConfigError: the calibration is invalid, or was measured with other sizes or calls.
        """
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

    @property
    def decoded(self) -> ModelSizes:
        """The sizes for costs of decoding: ``tokens`` is the number of cached tokens."""
        return self.sizes._replace(tokens=self.cached_tokens or self.sizes.tokens)


def summed_layers(resolved: ResolvedGenome, layer_cost: Callable[[ResolvedGenome], float]) -> float:
    """Return a cost summed over a model's layers, also those that do not hold the mechanism."""
    depth = resolved.sizes.depth
    count = len(resolved.genome.placement.layers(depth))
    total = count * layer_cost(resolved)
    if count == depth:
        return total
    from nas.compiler import rest_attention

    return total + (depth - count) * layer_cost(rest_attention(resolved))
