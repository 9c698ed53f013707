"""The model and machine for which costs are computed, and sums over a model's layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nas.genome import Genome, ModelSizes

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome


@dataclass(frozen=True)
class CostContext:
    """The model and machine for which costs are computed.

    Attributes:
        sizes: the sizes of the model: width, heads, layers and tokens.
        qkv_bias: whether the projections of queries, keys and values have biases.
        is_causal: whether attention has a causal mask. Pairs of query and key that the mask hides
            are computed and counted nevertheless.
        calibration: unit times measured by ``nas.costs.timing.calibrate``; empty if no cost needs
            them.
        context: the number of cached tokens for costs of decoding; None for ``sizes.tokens``.
    """

    sizes: ModelSizes
    qkv_bias: bool = False
    is_causal: bool = False
    calibration: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """Return a genome in normal form (simplified, canonical order) with these sizes.

        Raises:
            GenomeError: the mechanism does not exist at these sizes.
        """
        from nas.compiler import resolve

        return resolve(genome, self.sizes, self.is_causal)

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
