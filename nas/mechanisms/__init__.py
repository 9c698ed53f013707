"""The named mechanisms: attention as published, as genomes of ours.

Usable wherever a genome is, and seeded into a search by the space that lists them. One file a
family; each mechanism is a function whose docstring is its reading: the equations with the paper's
numbers, the shapes, and what was decided where the paper is silent or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nas.canonical import canonicalise, digest
from nas.config import near
from nas.errors import GenomeError, SpaceError
from nas.genome import Genome
from nas.mechanisms import controls, evolving, neural, patterns, qana, sqa, standard
from nas.mechanisms.base import Mechanism, members
from nas.primitives import get
from nas.space import SearchSpace
from nas.validation import Policy, validate

__all__ = ["MECHANISMS", "Mechanism", "mechanism", "names_of", "seeds"]

# In the order of `nas mechanisms`.
_FAMILIES: Final = (standard, sqa, qana, neural, patterns, evolving, controls)

MECHANISMS: Final[Mapping[str, Mechanism]] = MappingProxyType(
    {found.name: found for family in _FAMILIES for found in members(family)}
)


def mechanism(name: str) -> Mechanism:
    """The mechanism of that name.

    Raises:
        GenomeError: there is none; the nearest name is suggested.
    """
    if name not in MECHANISMS:
        raise GenomeError(
            f"there is no mechanism {name!r}{near(name, MECHANISMS)}; "
            f"expected one of {', '.join(MECHANISMS)}."
        )
    return MECHANISMS[name]


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
