"""The named mechanisms: attention as published, as genomes of ours.

Usable wherever a genome is, and seeded into a search by the space that lists them. One file a
family; each mechanism is a function whose docstring is its reading: the equations with the paper's
numbers, the shapes, and what was decided where the paper is silent or wrong. A package offers a
module of them under the entry point group ``nas.mechanisms``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from nas.canonical import canonicalise, digest
from nas.errors import GenomeError, SpaceError
from nas.genome import Genome
from nas.mechanisms.base import MECHANISMS, Mechanism
from nas.primitives import get
from nas.space import SearchSpace
from nas.validation import Policy, validate

__all__ = ["MECHANISMS", "Mechanism", "mechanism", "names_of", "seeds"]

# Whichever of them is imported first, they stand in this order.
FAMILIES: Final = ("standard", "sqa", "qana", "neural", "patterns", "evolving", "controls")
for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")


def mechanism(name: str) -> Mechanism:
    """The mechanism of that name.

    Raises:
        GenomeError: there is none; the nearest name is suggested.
    """
    return MECHANISMS.get(name)


def names_of(genome: Genome) -> tuple[str, ...]:
    """The names of the mechanisms that a genome equals; its size decides nothing."""
    own = digest(genome)
    return tuple(name for name, found in MECHANISMS.items() if digest(found.genome) == own)


def seeds(space: SearchSpace, policy: Policy, is_causal: bool = False) -> tuple[Mechanism, ...]:
    """The mechanisms that a space seeds, each a legal point of it.

    Those that see later tokens are left out where ``is_causal`` or the space is.

    Raises:
        SpaceError: one is not legal or no point of the space; the reason is given.
    """
    found = []
    for name in space.mechanisms:
        try:
            seed = mechanism(name)
        except GenomeError as error:
            raise SpaceError(f"space {space.name}, mechanisms: {error}") from None
        if (is_causal or space.causal) and _sees_ahead(seed.genome):
            continue
        reason = next((v.message for v in validate(seed.genome, policy)), None)
        # As written or in its normal form, which names no projection that nobody reads.
        if space.excludes(seed.genome) is not None:
            reason = reason or space.excludes(canonicalise(seed.genome))
        if reason is not None:
            raise SpaceError(f"space {space.name}, mechanisms: {name} {reason}.")
        found.append(seed)
    return tuple(found)


def _sees_ahead(genome: Genome) -> bool:
    found = ((get(node.op), node.param_dict()) for node in genome.nodes)
    return any(not primitive.is_causal_safe(primitive.full(params)) for primitive, params in found)
