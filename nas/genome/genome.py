"""The genome: a DAG of operations that defines an attention mechanism.

    {"graph_def": [{"op": "scaled_dot_product", "inputs": ["q", "k"]}, ...],
     "proj_config": {"has_wq": true, ...}, "placement": "all"}

The operands of a node are the streams ``q``, ``k`` and ``v``, or earlier nodes by their index. The
last node is the output. ``graph_def`` and the flags ``has_w...`` are the format of Evolving
Attention, section 2.2; all other fields have defaults. This module checks the syntax of genomes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from pydantic import Field

from nas.common.config import Frozen, describe, parse_model
from nas.common.errors import ConfigError, GenomeError
from nas.genome.options import FLAGS, Projections, Visibility
from nas.genome.placement import ALL, Placement, PlacementField

Ref = str | int
ParamValue = bool | int | float | str | None

STREAMS: Final = ("q", "k", "v")
MAX_NODES: Final = 256
MAX_INPUTS: Final = 16


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a genome; parameters that it does not set have the primitive's defaults."""

    op: str
    inputs: tuple[Ref, ...]
    params: tuple[tuple[str, ParamValue], ...] = ()  # sorted by name

    def reading(self, slot: int, *refs: Ref) -> Node:
        """Return a copy of the node in which ``refs`` replace the operand at index ``slot``."""
        return replace(self, inputs=(*self.inputs[:slot], *refs, *self.inputs[slot + 1 :]))

    def renamed(self, names: Mapping[Any, Ref]) -> Node:
        """Return a copy of the node with new operands for those among the keys of ``names``."""
        return Node(self.op, tuple(names.get(ref, ref) for ref in self.inputs), self.params)


@dataclass(frozen=True, slots=True)
class Genome:
    """An attention mechanism as data; nodes are in topological order, and the last is the output.

    ``==`` compares fields; equal digests (``nas.genome.canonical.digest``) are equal mechanisms.
    """

    nodes: tuple[Node, ...]
    projections: Projections = field(default_factory=Projections)
    placement: Placement = ALL
    visibility: Visibility = field(default_factory=Visibility)

    @classmethod
    def from_dict(cls, data: Any, where: str = "genome") -> Genome:
        """Return the genome with the JSON form ``data`` (docs/formats.md).

        A graph without nodes is accepted; type inference reports it as an error.

        Raises:
            GenomeError: ``data`` has an unknown key or label, a value of a wrong type, or an
                operand that does not exist. The message begins with ``where``.
        """
        try:
            form = parse_model(data, _GenomeForm, where)
        except ConfigError as error:
            raise GenomeError(str(error)) from None
        nodes = (_node(node, i, f"{where}, node {i}") for i, node in enumerate(form.graph_def))
        return cls(tuple(nodes), form.proj_config, form.placement, form.visibility)

    def to_dict(self) -> dict[str, Any]:
        """Return the genome's JSON form. Defaults are omitted, except those of ``has_w...``."""
        graph = [
            {"op": node.op, "inputs": list(node.inputs)}
            | ({"params": dict(node.params)} if node.params else {})
            for node in self.nodes
        ]
        result: dict[str, Any] = {
            "graph_def": graph,
            "proj_config": _non_defaults(self.projections, FLAGS),
        }
        if self.placement != ALL:
            result["placement"] = self.placement.plain()
        if self.visibility != Visibility():
            result["visibility"] = _non_defaults(self.visibility)
        return result

    def to_json(self) -> str:
        """Return the genome's JSON form on one line; equal genomes give equal lines."""
        return json.dumps(self.to_dict(), separators=(", ", ": "), allow_nan=False)

    def rest(self) -> Genome:
        """Return the genome of the attention in the layers without the mechanism."""
        from nas.genome.mechanisms import MECHANISMS  # which imports this module

        rest = self.placement.rest
        nodes = MECHANISMS[rest.name].genome.nodes
        return Genome(nodes, Projections(kv_heads=rest.kv_heads), ALL, rest.visibility)

    def with_node(self, index: int, node: Node) -> Genome:
        """Return the genome with ``node`` in place of the node at ``index``."""
        return replace(self, nodes=(*self.nodes[:index], node, *self.nodes[index + 1 :]))

    def bypassing(self, index: int, ref: Ref) -> Genome:
        """Return the genome with ``ref``, a node if that is the output, in place of a node."""
        if index == len(self.nodes) - 1:
            assert isinstance(ref, int), "the output must be a node"
            return replace(self, nodes=self.nodes[: ref + 1])
        return replace(self, nodes=tuple(node.renamed({index: ref}) for node in self.nodes))

    def pruned(self) -> Genome:
        """Return the genome without nodes on which the output does not depend."""
        new_index = {old: new for new, old in enumerate(self.live())}
        return replace(self, nodes=tuple(self.nodes[old].renamed(new_index) for old in new_index))

    def live(self) -> tuple[int, ...]:
        """Return the indices of the nodes on which the output depends, ascending."""
        live: set[Ref] = {len(self.nodes) - 1}
        for index in range(len(self.nodes) - 1, -1, -1):
            if index in live:
                live.update(self.nodes[index].inputs)
        return tuple(index for index in range(len(self.nodes)) if index in live)

    def streams(self) -> set[str]:
        """Return the streams that the output depends on."""
        refs = (ref for index in self.live() for ref in self.nodes[index].inputs)
        return {ref for ref in refs if isinstance(ref, str)}


class ModelSizes(NamedTuple):
    """The sizes at which a mechanism runs: model width, heads of the backbone, layers, tokens."""

    dim: int
    heads: int
    depth: int
    tokens: int


class _NodeForm(Frozen):
    op: str
    inputs: list[Any] = Field(max_length=MAX_INPUTS)
    params: dict[str, Any] = {}


class _GenomeForm(Frozen):
    graph_def: list[_NodeForm] = Field(max_length=MAX_NODES)
    proj_config: Projections = Projections()
    placement: PlacementField = ALL
    visibility: Visibility = Visibility()


def _node(form: _NodeForm, index: int, where: str) -> Node:
    for ref in form.inputs:
        is_node = type(ref) is int and 0 <= ref < index
        if not is_node and ref not in STREAMS:
            nodes = f" or an earlier node (0 to {index - 1})" if index else ""
            raise GenomeError(
                f"{where} ({form.op}): reads {describe(ref)}; expected one of 'q', 'k', 'v'{nodes}."
            )
    for name, value in form.params.items():
        is_finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, ParamValue) or not is_finite:
            raise GenomeError(
                f"{where} ({form.op}), {name}: found {describe(value)}; "
                "expected a number, a word or a flag."
            )
    return Node(form.op, tuple(form.inputs), tuple(sorted(form.params.items())))


def _non_defaults(form: Projections | Visibility, always: tuple[str, ...] = ()) -> dict[str, Any]:
    values = ((f, getattr(form, f.name)) for f in fields(form))
    return {f.name: value for f, value in values if f.name in always or value != f.default}
