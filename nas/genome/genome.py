"""The genome: a DAG of operations that defines an attention mechanism.

    {"graph_def": [{"op": "scaled_dot_product", "inputs": ["q", "k"]}, ...],
     "proj_config": {"has_wq": true, ...}, "placement": "all"}

The operands of a node are the streams ``q``, ``k`` and ``v``, or earlier nodes by their index. The
last node is the output. This module checks the syntax of genomes; ``nas.genome.primitives`` defines
the operations.

``graph_def`` and the four flags ``has_wq``, ``has_wk``, ``has_wv`` and ``has_wo`` of
``proj_config`` are the format of Evolving Attention, section 2.2. Files in that format keep their
meaning, because all other fields have defaults.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import Field, GetPydanticSchema, StrictBool, StrictInt
from pydantic_core.core_schema import literal_schema

from nas.common.config import Frozen, describe, parse_model
from nas.common.errors import ConfigError, GenomeError

if TYPE_CHECKING:
    import networkx

Ref = str | int
ParamValue = bool | int | float | str | None

STREAMS: Final = ("q", "k", "v")
MAX_NODES: Final = 256
MAX_INPUTS: Final = 16
MAX_WINDOW: Final = 2**20
PLACEMENTS: Final = ("all", "first", "alternate")
FLAGS: Final = ("has_wq", "has_wk", "has_wv", "has_wo")
LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "q_heads": ("all", "3/4", "1/2", "1/4", "1/8", "one"),
    "kv_heads": ("all", "3/4", "1/2", "1/4", "1/8", "one"),
    "qk_dim": ("all", "3/4", "1/2", "1/4"),
    "raw": ("slice", "shared"),
    "merge": ("concat", "sum"),
}


def _one_of(words: Sequence[str]) -> GetPydanticSchema:
    """Return a pydantic schema that accepts only ``words``.

    A field of type ``Literal`` would be an error in mypy wherever a ``str`` is assigned to it.
    """
    return GetPydanticSchema(lambda source, handler: literal_schema(list(words)))


Placement = Annotated[str, _one_of(PLACEMENTS)]
HeadLabel = Annotated[str, _one_of(LABELS["q_heads"])]
WidthLabel = Annotated[str, _one_of(LABELS["qk_dim"])]
RawLabel = Annotated[str, _one_of(LABELS["raw"])]
MergeLabel = Annotated[str, _one_of(LABELS["merge"])]
Window = Annotated[StrictInt, Field(ge=1, le=MAX_WINDOW)] | None
GlobalTokens = Annotated[StrictInt, Field(ge=0, le=MAX_WINDOW)]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of a genome.

    Attributes:
        op: name of a primitive.
        inputs: operands; each is a stream or the index of an earlier node.
        params: pairs of a parameter's name and value, sorted by name. All other parameters have
            the primitive's defaults.
    """

    op: str
    inputs: tuple[Ref, ...]
    params: tuple[tuple[str, ParamValue], ...] = ()

    def param_dict(self) -> dict[str, ParamValue]:
        """Return the parameters that the node sets, as a dictionary."""
        return dict(self.params)

    def reading(self, slot: int, *refs: Ref) -> Node:
        """Return a copy of the node in which ``refs`` replace the operand at index ``slot``.

        Without ``refs``, the operand is removed.
        """
        return replace(self, inputs=(*self.inputs[:slot], *refs, *self.inputs[slot + 1 :]))

    def renamed(self, names: Mapping[Any, Ref]) -> Node:
        """Return a copy of the node with renamed operands.

        Args:
            names: new operand for each operand to be renamed.
        """
        return Node(self.op, tuple(names.get(ref, ref) for ref in self.inputs), self.params)


@dataclass(frozen=True, slots=True)
class Projections:
    """The linear maps before and after a genome's nodes, as labels that hold at every model size.

    Attributes:
        has_wq, has_wk, has_wv: whether the stream ``q``, ``k`` or ``v`` is a linear projection of
            the attention block's input.
        has_wo: whether the output is projected.
        q_heads: number of query heads, as a fraction of the backbone's heads.
        kv_heads: number of key and value heads, as a fraction of the backbone's heads.
        qk_dim: width of projected queries and keys, as a fraction of the head width.
        raw: form of a stream without projection: the input cut into heads ("slice"), or the whole
            input for every head ("shared").
        merge: whether head outputs are concatenated ("concat") or summed ("sum").
    """

    has_wq: StrictBool = True
    has_wk: StrictBool = True
    has_wv: StrictBool = True
    has_wo: StrictBool = True
    q_heads: HeadLabel = "all"
    kv_heads: HeadLabel = "all"
    qk_dim: WidthLabel = "all"
    raw: RawLabel = "slice"
    merge: MergeLabel = "concat"

    def has_projection(self, stream: str) -> bool:
        """Return whether the stream ``q``, ``k`` or ``v`` is projected."""
        return {"q": self.has_wq, "k": self.has_wk, "v": self.has_wv}[stream]


@dataclass(frozen=True, slots=True)
class Visibility:
    """The mask of a mechanism: which keys each query may see.

    With a window of w tokens, query i sees key j if |i - j| <= w // 2. In a call with
    ``is_causal=True``, query i sees key j if 0 <= i - j < w (Sparse Query Attention, sections 2.5
    and 6). The first ``global_tokens`` tokens see every key and are seen by every query (Beltagy
    et al. 2020, section 3.1).

    A causal mask that is passed as ``attn_mask`` does not select the causal window. It only hides
    the keys after query i, so that w // 2 + 1 tokens remain.

    Attributes:
        window: width of the window in tokens; None for no window.
        global_tokens: number of global tokens; it has no effect without a window.
    """

    window: Window = None
    global_tokens: GlobalTokens = 0


@dataclass(frozen=True, slots=True)
class Genome:
    """An attention mechanism as data.

    The operator ``==`` compares fields. To compare mechanisms, compare their digests
    (``nas.genome.canonical.digest``).

    Attributes:
        nodes: operations in topological order; the last node is the output.
        projections: linear maps before and after the graph.
        placement: layers of the backbone that have the mechanism: "all", "first", or "alternate"
            for every second layer.
        visibility: mask of the mechanism.
    """

    nodes: tuple[Node, ...]
    projections: Projections = field(default_factory=Projections)
    placement: str = "all"
    visibility: Visibility = Visibility()

    @classmethod
    def from_dict(cls, data: Any, where: str = "genome") -> Genome:
        """Return the genome with the JSON form ``data`` (docs/formats.md).

        A graph without nodes is accepted; type inference reports it as an error.

        Args:
            where: first words of error messages, such as the name of a file.

        Raises:
            GenomeError: ``data`` has an unknown key, an unknown label, a value of a wrong type, or
                an operand that does not exist.
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
        if self.placement != "all":
            result["placement"] = self.placement
        if self.visibility != Visibility():
            result["visibility"] = _non_defaults(self.visibility)
        return result

    def to_json(self) -> str:
        """Return the genome's JSON form on one line; equal genomes give equal lines."""
        return json.dumps(self.to_dict(), separators=(", ", ": "), allow_nan=False)

    def graph(self) -> networkx.DiGraph[Ref]:
        """Return the genome as a networkx graph, with streams and indices of nodes as vertices.

        Each vertex has the attribute ``op``, the name of the primitive or stream. Each edge has the
        attribute ``slots``, the indices of the reader's operands that it supplies.
        """
        import networkx as nx

        graph: networkx.DiGraph[Ref] = nx.DiGraph()
        for index, node in enumerate(self.nodes):
            graph.add_node(index, op=node.op)
            for slot, ref in enumerate(node.inputs):
                if ref not in graph:
                    graph.add_node(ref, op=ref)
                slots = graph.edges[ref, index]["slots"] if graph.has_edge(ref, index) else ()
                graph.add_edge(ref, index, slots=(*slots, slot))
        return graph

    def with_node(self, index: int, node: Node) -> Genome:
        """Return the genome with ``node`` in place of the node at ``index``."""
        return replace(self, nodes=(*self.nodes[:index], node, *self.nodes[index + 1 :]))

    def with_inputs(self, index: int, *inputs: Ref) -> Genome:
        """Return the genome with ``inputs`` as operands of the node at ``index``."""
        return self.with_node(index, replace(self.nodes[index], inputs=inputs))

    def bypassing(self, index: int, ref: Ref) -> Genome:
        """Return the genome in which all readers of node ``index`` read ``ref`` instead."""
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


class ModelSizes(NamedTuple):
    """The sizes at which a mechanism runs: model width, heads of the backbone, layers, tokens."""

    dim: int
    heads: int
    depth: int
    tokens: int


def head_count(label: str, whole: int) -> int:
    """Return the number of heads for a head label, such as 6 for "3/4" of 8 heads.

    A number below one is rounded up to one.

    Args:
        whole: number of heads of the backbone.

    Raises:
        ValueError: the number of heads is above one and not whole.
    """
    if label in ("all", "one"):
        return whole if label == "all" else 1
    top, bottom = (int(part) for part in label.split("/"))
    if top * whole < bottom:
        return 1
    if top * whole % bottom:
        raise ValueError(f"{label} of {whole} heads is no whole number; expected heads that divide")
    return top * whole // bottom


def key_width(label: str, head_dim: int) -> int:
    """Return the key width for a width label, such as 32 for "1/2" of a head width of 64.

    Fractions of the head width are rounded to an even number, and are at least 2.
    """
    if label == "all" or head_dim < 2:
        return head_dim
    top, bottom = (int(part) for part in label.split("/"))
    return max(2, 2 * round(top * head_dim / (2 * bottom)))


def layers_with_mechanism(placement: str, depth: int) -> tuple[int, ...]:
    """Return the indices of the layers with the mechanism. Other layers have standard attention.

    Args:
        depth: number of layers of the backbone.
    """
    return {
        "all": tuple(range(depth)),
        "first": (0,),
        "alternate": tuple(range(0, depth, 2)),
    }[placement]


class _NodeForm(Frozen):
    """A node as written in JSON. ``_node`` checks its operands and parameter values."""

    op: str
    inputs: list[Any] = Field(max_length=MAX_INPUTS)
    params: dict[str, Any] = {}


class _GenomeForm(Frozen):
    graph_def: list[_NodeForm] = Field(max_length=MAX_NODES)
    proj_config: Projections = Projections()
    placement: Placement = "all"
    visibility: Visibility = Visibility()


def _node(form: _NodeForm, index: int, where: str) -> Node:
    for ref in form.inputs:
        is_node = isinstance(ref, int) and not isinstance(ref, bool) and 0 <= ref < index
        if not is_node and not (isinstance(ref, str) and ref in STREAMS):
            nodes = f" or an earlier node (0 to {index - 1})" if index else ""
            raise GenomeError(
                f"{where} ({form.op}): reads {describe(ref)}; expected one of 'q', 'k', 'v'{nodes}."
            )
    for name, value in form.params.items():
        is_finite = not isinstance(value, float) or math.isfinite(value)
        if not (value is None or isinstance(value, bool | int | float | str)) or not is_finite:
            raise GenomeError(
                f"{where} ({form.op}), {name}: found {describe(value)}; "
                "expected a number, a word or a flag."
            )
    return Node(form.op, tuple(form.inputs), tuple(sorted(form.params.items())))


def _non_defaults(form: Projections | Visibility, always: tuple[str, ...] = ()) -> dict[str, Any]:
    values = {f.name: getattr(form, f.name) for f in fields(form)}
    defaults = {f.name: f.default for f in fields(form)}
    return {k: v for k, v in values.items() if k in always or v != defaults[k]}
