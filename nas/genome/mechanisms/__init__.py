"""The named mechanisms: attention as published, as genomes of ours.

Usable wherever a genome is, and seeded into a search by the space that lists them. One file a
family; each mechanism is a function whose docstring is its reading: the equations with the paper's
numbers, the shapes, and what was decided where the paper is silent or wrong. A package offers a
module of them under the entry point group ``nas.mechanisms``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms.base import MECHANISMS, NamedMechanism

__all__ = ["MECHANISMS", "NamedMechanism", "mechanism", "names_of"]

# Whichever of them is imported first, they stand in this order.
FAMILIES: Final = ("standard", "sqa", "qana", "neural", "patterns", "evolving", "controls")
for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")


def mechanism(name: str) -> NamedMechanism:
    """The mechanism of that name.

    Raises:
        GenomeError: there is none; the nearest name is suggested.
    """
    return MECHANISMS.get(name)


def names_of(genome: Genome) -> tuple[str, ...]:
    """The names of the mechanisms that a genome equals; its size decides nothing."""
    own = digest(genome)
    return tuple(name for name, found in MECHANISMS.items() if digest(found.genome) == own)
