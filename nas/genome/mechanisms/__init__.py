"""The named mechanisms: published attention mechanisms as genomes.

A mechanism is a function that returns a genome. Its docstring gives equations with their numbers in
the paper, shapes, and decisions where the paper is ambiguous or wrong. Other packages add modules
under the entry point group ``nas.mechanisms``.
"""

from __future__ import annotations

from dataclasses import fields, replace
from importlib import import_module
from typing import Final

from nas.common.config import near, parse_yaml
from nas.common.errors import GenomeError
from nas.genome import Genome, Projections, Visibility
from nas.genome.canonical import digest
from nas.genome.mechanisms.base import MECHANISMS, NamedMechanism
from nas.genome.primitives import check_vocabulary, get

__all__ = ["MECHANISMS", "NamedMechanism", "mechanism", "names_of"]

_GROUPS: Final = {f.name: "proj_config" for f in fields(Projections)} | {
    f.name: "visibility" for f in fields(Visibility)
}

# In this order the mechanisms are listed.
for _family in ("standard", "papers", "recurrent"):
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
    return replace(entry, name=text, genome=_changed(entry.genome, changes, text))


def names_of(genome: Genome) -> tuple[str, ...]:
    """Return the names of all named mechanisms with the digest of the genome."""
    key = digest(genome)
    return tuple(name for name, entry in MECHANISMS.items() if digest(entry.genome) == key)


def _changed(genome: Genome, changes: str, text: str) -> Genome:
    """Return a genome with ``changes``: "name=value" pairs, separated by commas.

    A name is "placement", a field of the placement, of the projections or of the visibility, or a
    parameter of a primitive, which is changed in each node that has it.
    """
    data, pattern = genome.to_dict(), genome.placement.to_mapping()
    for change in changes.split(","):
        name, equals, value = (part.strip() for part in change.partition("="))
        if not equals:
            raise GenomeError(f"{text}: {change!r} is no change; expected NAME=VALUE, ...")
        holders = [node for node in data["graph_def"] if name in get(node["op"]).parameters]
        for node in holders:
            node.setdefault("params", {})[name] = parse_yaml(value, text)
        group = _GROUPS.get(name)
        if group is not None:
            data.setdefault(group, {})[name] = parse_yaml(value, text)
        elif name == "placement":
            data[name] = value
        elif name in pattern:
            data["placement"] = pattern = pattern | {name: parse_yaml(value, text)}
        elif not holders:
            parameters = {name for node in genome.nodes for name in get(node.op).parameters}
            known = sorted({*parameters, *_GROUPS, *pattern})
            raise GenomeError(
                f"{text}: there is no {name!r} to change{near(name, known)}; expected placement or "
                f"one of {', '.join(known)}."
            )
    return check_vocabulary(Genome.from_dict(data, text), text)
