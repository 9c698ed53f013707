"""The model and machine for which costs are computed, and sums over a model's layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nas.genome import Genome, ModelSizes

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome
    from nas.costs.timing.prediction import Calibration


@dataclass(frozen=True)
class CostContext:
    """The model and machine for which costs are computed."""

    sizes: ModelSizes
    qkv_bias: bool = False
    is_causal: bool = False
    calibration: Mapping[str, Any] = field(default_factory=dict)  # nas.costs.timing.calibrate
    context: int | None = None  # cached tokens for costs of decoding; None for ``sizes.tokens``

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
        from nas.costs.timing.prediction import checked_calibration

        return checked_calibration(self)

    @property
    def decoded(self) -> ModelSizes:
        """The sizes for costs of decoding: ``tokens`` is the number of cached tokens."""
        return self.sizes._replace(tokens=self.context or self.sizes.tokens)


def summed_layers(resolved: ResolvedGenome, layer_cost: Callable[[ResolvedGenome], float]) -> float:
    """Return a cost summed over a model's layers, also those that do not hold the mechanism."""
    depth = resolved.sizes.depth
    count = len(resolved.genome.placement.layers(depth))
    total = count * layer_cost(resolved)
    if count == depth:
        return total
    from nas.compiler import rest_attention

    return total + (depth - count) * layer_cost(rest_attention(resolved))
