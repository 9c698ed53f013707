"""The named mechanisms: published attention mechanisms as genomes.

Each file contains one family. A mechanism is a function that returns a genome. Its docstring gives
equations with their numbers in the paper, shapes, and decisions where the paper is ambiguous or
wrong. Other packages add modules under the entry point group ``nas.mechanisms``.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from nas.genome import Genome
from nas.genome.canonical import digest
from nas.genome.mechanisms.base import MECHANISMS, NamedMechanism
from nas.genome.mechanisms.changes import changed

__all__ = ["MECHANISMS", "NamedMechanism", "mechanism", "names_of"]

# In this order the mechanisms are listed.
for _family in ("standard", "sqa", "neural", "patterns", "modern", "recurrent", "evolving"):
    import_module(f"{__name__}.{_family}")


def mechanism(text: str) -> NamedMechanism:
    """Return the mechanism of that name, or with changes, such as ``qana:hidden=8,qk_dim=1/4``.

    Its name is then the whole text.

    Raises:
        GenomeError: no mechanism has this name, and the message suggests the most similar name; or
            it has nothing that a change names.
    """
    name, colon, changes = text.partition(":")
    entry = MECHANISMS[name]
    if not colon:
        return entry
    return replace(entry, name=text, genome=changed(entry.genome, changes, text))


def names_of(genome: Genome) -> tuple[str, ...]:
    """Return the names of all named mechanisms that are equal to the genome, by their digests."""
    key = digest(genome)
    return tuple(name for name, entry in MECHANISMS.items() if digest(entry.genome) == key)
