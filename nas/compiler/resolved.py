"""Genomes in normal form (simplified, in canonical order) at given model sizes.

Validation, cost counts and training take these genomes as input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from nas.compiler.plan import plan_as_written
from nas.genome import Genome, ModelSizes, Placement, Rest
from nas.genome.canonical import canonicalise, normal_digest, resolved_digest
from nas.genome.mechanisms import mechanism
from nas.genome.types import Typing, infer

if TYPE_CHECKING:
    from nas.compiler.plan import Plan


@dataclass(frozen=True)
class ResolvedGenome:
    """A genome in normal form at given model sizes, as ``resolve`` returns it.

    Genomes with the same ``key`` are the same mechanism, with the same training. The genome may
    be ill-typed; then it has no plan.
    """

    genome: Genome
    sizes: ModelSizes
    is_causal: bool | None
    key: str

    @cached_property
    def digest(self) -> str:
        """The digest of the normal form, which identifies the genome in files of runs."""
        return normal_digest(self.genome)

    @cached_property
    def types(self) -> Typing:
        """The inferred types of all nodes, with the type errors if there are any."""
        return infer(self.genome)

    @cached_property
    def plan(self) -> Plan:
        """The plan, or ViolationError if the genome does not type-check."""
        return plan_as_written(self.genome, self.types)

    def __reduce__(self) -> tuple[Any, ...]:
        # The cached plan and types are not pickled.
        return type(self), (self.genome, self.sizes, self.is_causal, self.key)


def resolve(genome: Genome, sizes: ModelSizes, is_causal: bool | None = False) -> ResolvedGenome:
    """Return a genome in normal form (simplified, in canonical order) at given sizes.

    Args:
        is_causal: True if the attention is causal in every call, False if in no call, None for a
            normal form that is valid in both cases.

    Raises:
        GenomeError: a primitive does not exist, or these sizes have no whole number of heads or key
            features for a fraction in the genome.
    """
    form = canonicalise(genome, sizes, is_causal=is_causal)
    return ResolvedGenome(form, sizes, is_causal, resolved_digest(form, sizes))


@lru_cache(maxsize=64)
def standard_attention(sizes: ModelSizes, is_causal: bool | None = False) -> ResolvedGenome:
    """Return standard multi-head attention at given sizes."""
    return resolve(mechanism("mha").genome, sizes, is_causal)


def rest_attention(resolved: ResolvedGenome) -> ResolvedGenome:
    """Return the attention of the layers that do not hold the mechanism."""
    return _rest(resolved.genome.placement.rest, resolved.sizes, resolved.is_causal)


@lru_cache(maxsize=64)
def _rest(rest: Rest, sizes: ModelSizes, is_causal: bool | None) -> ResolvedGenome:
    return resolve(Genome((), placement=Placement(rest=rest)).rest(), sizes, is_causal)
