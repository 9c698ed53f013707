"""The named mechanisms: published attention mechanisms as genomes.

Each file holds one family. A mechanism is a function; its docstring gives the equations with the
paper's numbers, the shapes, and decisions where the paper is ambiguous or wrong. Other packages add
modules under the entry point group ``nas.mechanisms``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms.base import MECHANISMS, NamedMechanism

__all__ = ["MECHANISMS", "NamedMechanism", "mechanism", "names_of"]

# Fixes the order of the mechanisms.
FAMILIES: Final = ("standard", "sqa", "qana", "neural", "patterns", "evolving", "controls")
for _family in FAMILIES:
    import_module(f"{__name__}.{_family}")


def mechanism(name: str) -> NamedMechanism:
    """The mechanism of that name.

    Raises:
        GenomeError: unknown name; the message suggests the nearest name.
    """
    return MECHANISMS.get(name)


def names_of(genome: Genome) -> tuple[str, ...]:
    """The names of the mechanisms with the genome's digest."""
    key = digest(genome)
    return tuple(name for name, entry in MECHANISMS.items() if digest(entry.genome) == key)
