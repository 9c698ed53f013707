"""The named mechanisms: published attention mechanisms as genomes.

Each file contains one family. A mechanism is a function that returns a genome. Its docstring gives
equations with their numbers in the paper, shapes, and decisions where the paper is ambiguous or
wrong. Other packages add modules under the entry point group ``nas.mechanisms``.
"""

from __future__ import annotations

from importlib import import_module

from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms.base import MECHANISMS, NamedMechanism

__all__ = ["MECHANISMS", "NamedMechanism", "mechanism", "names_of"]

# In this order the mechanisms are listed.
_BEFORE = ("standard", "sqa", "neural", "patterns", "modern", "recurrent")
for _family in (*_BEFORE, "linear_models", "delta_models", "evolving"):
    import_module(f"{__name__}.{_family}")


def mechanism(name: str) -> NamedMechanism:
    """Return the mechanism of that name.

    Raises:
        GenomeError: no mechanism has this name; the message suggests the most similar name.
    """
    return MECHANISMS.get(name)


def names_of(genome: Genome) -> tuple[str, ...]:
    """Return the names of all named mechanisms that are equal to the genome, by their digests."""
    key = digest(genome)
    return tuple(name for name, entry in MECHANISMS.items() if digest(entry.genome) == key)
