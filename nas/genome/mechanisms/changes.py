"""Change fields of a genome by a text such as "hidden=8,qk_dim=1/4"."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from nas.common.config import near, parse_yaml
from nas.common.errors import GenomeError
from nas.genome import Genome, Projections, Visibility
from nas.genome.primitives import check_vocabulary, get

_GROUPS: Final = {f.name: "proj_config" for f in fields(Projections)} | {
    f.name: "visibility" for f in fields(Visibility)
}


def changed(genome: Genome, changes: str, text: str) -> Genome:
    """Return a genome with changed fields.

    Args:
        changes: "name=value" pairs, separated by commas. A name is "placement", a field of the
            placement, of the projections or of the visibility, or a parameter of a primitive. A
            parameter is changed in each node that has it.
        text: the complete argument of the command, for error messages.
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
