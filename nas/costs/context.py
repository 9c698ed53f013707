"""The model and machine for which costs are computed, and sums over a backbone's layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nas.genome import Genome, ModelSizes, layers_with_mechanism

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome


@dataclass(frozen=True)
class CostContext:
    """The model and machine for which costs are computed.

    Attributes:
        sizes: sizes of the backbone.
        qkv_bias: whether W_Q, W_K and W_V have biases.
        is_causal: whether every call is causal; masked pairs are still computed and counted.
        calibration: measured unit times, from nas.costs.timing; empty without a calibration.
        context: number of cached tokens for decoding costs; None for the model's tokens.
    """

    sizes: ModelSizes
    qkv_bias: bool = False
    is_causal: bool = False
    calibration: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None

    def resolve(self, genome: Genome) -> ResolvedGenome:
        """The genome in normal form at these sizes; GenomeError if it does not exist at them."""
        from nas.compiler import resolve

        return resolve(genome, self.sizes, self.is_causal)

    @property
    def decoded(self) -> ModelSizes:
        """The sizes for decoding costs."""
        return self.sizes._replace(tokens=self.context or self.sizes.tokens)


def summed_layers(resolved: ResolvedGenome, layer: Callable[[ResolvedGenome], float]) -> float:
    """Sum a cost over a backbone's layers; layers outside the placement are standard attention."""
    depth = resolved.sizes.depth
    count = len(layers_with_mechanism(resolved.genome.placement, depth))
    total = count * layer(resolved)
    if count == depth:
        return total
    from nas.compiler import standard_attention

    return total + (depth - count) * layer(standard_attention(resolved.sizes, resolved.is_causal))
