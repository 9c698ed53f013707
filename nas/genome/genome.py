"""The genome: a frozen DAG of named operations, the projections around it, its placement.

    {"graph_def": [{"op": "scaled_dot_product", "inputs": ["q", "k"]}, ...],
     "proj_config": {"has_wq": true, ...}, "placement": "all"}

``graph_def`` and the four flags of ``proj_config`` are the published form (Evolving Attention,
section 2.2); the defaults of all other fields keep its meaning. A node reads the streams
``q``, ``k``, ``v`` or earlier nodes by index; the last node is the output. This module checks
syntax only; primitives define the operations.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nas.common.config import describe, near
from nas.common.errors import GenomeError

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


@dataclass(frozen=True, slots=True)
class Node:
    """One operation: the name of a primitive, its operands, and parameters sorted by name."""

    op: str
    inputs: tuple[Ref, ...]
    params: tuple[tuple[str, ParamValue], ...] = ()

    def param_dict(self) -> dict[str, ParamValue]:
        """The named parameters; all others have the primitive's defaults."""
        return dict(self.params)

    def reading(self, slot: int, *refs: Ref) -> Node:
        """The node with the operand at ``slot`` replaced by any number of operands."""
        return replace(self, inputs=(*self.inputs[:slot], *refs, *self.inputs[slot + 1 :]))

    def renamed(self, names: Mapping[Any, Ref]) -> Node:
        """The node with operands replaced by their values in ``names``; others are kept."""
        return replace(self, inputs=tuple(names.get(ref, ref) for ref in self.inputs))


@dataclass(frozen=True, slots=True)
class Projections:
    """The linear maps around the graph, as labels that apply to every model size.

    Attributes:
        has_wq, has_wk, has_wv, has_wo: whether the stream (or the output) is projected.
        q_heads, kv_heads: head counts as fractions of the backbone's heads.
        qk_dim: width of projected q and k as a fraction of the head width.
        raw: a stream without projection is cut into heads ("slice"), or every head reads all of it
            ("shared", as in Patterns).
        merge: heads are concatenated ("concat") or summed ("sum", as in Messages).
    """

    has_wq: bool = True
    has_wk: bool = True
    has_wv: bool = True
    has_wo: bool = True
    q_heads: str = "all"
    kv_heads: str = "all"
    qk_dim: str = "all"
    raw: str = "slice"
    merge: str = "concat"

    def has_projection(self, stream: str) -> bool:
        """Whether ``q``, ``k`` or ``v`` is projected."""
        return {"q": self.has_wq, "k": self.has_wk, "v": self.has_wv}[stream]


@dataclass(frozen=True, slots=True)
class Visibility:
    """A mechanism's own mask: the keys that a query may see.

    With a window of w tokens, query i sees key j if |i - j| <= w // 2, or under a causal mask if
    0 <= i - j < w (SW-SQA; Sparse Query Attention, sections 2.5 and 6). The first ``global_tokens``
    see every key and are seen by every query (Flex-SQA; Beltagy et al. 2020, section 3.1).

    The causal form applies to calls with ``is_causal``. A causal ``attn_mask`` alone hides the
    later half of the centred window, so that w // 2 + 1 tokens remain.

    Attributes:
        window: width in tokens, at least 1; None for no window.
        global_tokens: number of global tokens; has no effect without a window.
    """

    window: int | None = None
    global_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Genome:
    """A mechanism as data. ``==`` compares fields; ``nas.genome.canonical`` tests equivalence."""

    nodes: tuple[Node, ...]
    projections: Projections = field(default_factory=Projections)
    placement: str = "all"
    visibility: Visibility = Visibility()

    @classmethod
    def from_dict(cls, data: Any, where: str = "genome") -> Genome:
        """Read the JSON form (docs/formats.md).

        Raises:
            GenomeError: unknown key, wrong type, unknown label, or a reference to a node that does
                not exist. An empty graph is accepted here; the validator rejects it.
        """
        keys = _mapping(data, where, {"graph_def", "proj_config", "placement", "visibility"})
        if "graph_def" not in keys:
            raise GenomeError(f"{where}: the key 'graph_def' is missing.")
        graph = keys["graph_def"]
        if not isinstance(graph, list):
            raise GenomeError(
                f"{where}, graph_def: found {describe(graph)}; expected a list of nodes."
            )
        if len(graph) > MAX_NODES:
            raise GenomeError(
                f"{where}, graph_def: has {len(graph)} nodes; expected at most {MAX_NODES}."
            )
        nodes = tuple(_node(item, i, f"{where}, node {i}") for i, item in enumerate(graph))
        projections = _projections(keys.get("proj_config", {}), f"{where}, proj_config")
        placement = keys.get("placement", "all")
        _one_of(placement, PLACEMENTS, f"{where}, placement")
        visibility = _visibility(keys.get("visibility", {}), f"{where}, visibility")
        return cls(nodes, projections, placement, visibility)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without fields at their defaults except the four flags."""
        graph = [
            {"op": node.op, "inputs": list(node.inputs)}
            | ({"params": dict(node.params)} if node.params else {})
            for node in self.nodes
        ]
        default = Projections()
        config = {
            f.name: getattr(self.projections, f.name)
            for f in fields(Projections)
            if f.name in FLAGS or getattr(self.projections, f.name) != getattr(default, f.name)
        }
        placement = {} if self.placement == "all" else {"placement": self.placement}
        mask = {
            f.name: getattr(self.visibility, f.name)
            for f in fields(Visibility)
            if getattr(self.visibility, f.name) != f.default
        }
        visibility = {"visibility": mask} if mask else {}
        return {"graph_def": graph, "proj_config": config} | placement | visibility

    def to_json(self) -> str:
        """The JSON form on one line; equal genomes give equal text."""
        return json.dumps(self.to_dict(), separators=(", ", ": "), allow_nan=False)

    def graph(self) -> networkx.DiGraph[Ref]:
        """The graph for ancestry, layout and drawing: streams and node indices as vertices.

        Each vertex has ``op``; each edge has ``slots``, the input positions that it feeds.
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
        """The genome with one node replaced."""
        return replace(self, nodes=(*self.nodes[:index], node, *self.nodes[index + 1 :]))

    def with_inputs(self, index: int, *inputs: Ref) -> Genome:
        """The genome with the operands of one node replaced."""
        return self.with_node(index, replace(self.nodes[index], inputs=inputs))

    def bypassing(self, index: int, ref: Ref) -> Genome:
        """The genome in which readers of a node read ``ref`` instead."""
        return replace(self, nodes=tuple(node.renamed({index: ref}) for node in self.nodes))

    def pruned(self) -> Genome:
        """The genome without nodes that do not reach the output."""
        place = {old: new for new, old in enumerate(self.live())}
        return replace(self, nodes=tuple(self.nodes[old].renamed(place) for old in place))

    def live(self) -> tuple[int, ...]:
        """Indices of the nodes that reach the output, ascending."""
        alive: set[Ref] = {len(self.nodes) - 1}
        for index in range(len(self.nodes) - 1, -1, -1):
            if index in alive:
                alive.update(self.nodes[index].inputs)
        return tuple(index for index in range(len(self.nodes)) if index in alive)


class ModelSizes(NamedTuple):
    """The sizes at which a mechanism runs: model width, backbone's heads, layers, tokens."""

    dim: int
    heads: int
    depth: int
    tokens: int


def head_count(label: str, whole: int) -> int:
    """The number of heads that a label means: "3/4" of 8 is 6; a result below one becomes one.

    Raises:
        ValueError: the result is above one and not whole.
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
    """The key width that a label means: a fraction of the head width, even and at least two."""
    if label == "all" or head_dim < 2:
        return head_dim
    top, bottom = (int(part) for part in label.split("/"))
    return max(2, 2 * round(top * head_dim / (2 * bottom)))


def layers_with_mechanism(placement: str, depth: int) -> tuple[int, ...]:
    """The indices of the layers with the mechanism; all other layers have standard attention."""
    return {
        "all": tuple(range(depth)),
        "first": (0,),
        "alternate": tuple(range(0, depth, 2)),
    }[placement]


def _mapping(data: Any, where: str, names: Iterable[str]) -> dict[str, Any]:
    names = sorted(names)
    if not isinstance(data, dict):
        raise GenomeError(
            f"{where}: found {describe(data)}; expected a mapping with {', '.join(names)}."
        )
    for key in data:
        if key not in names:
            raise GenomeError(
                f"{where}: unknown key {key!r}; expected one of {', '.join(names)}"
                f"{near(key, names)}."
            )
    return data


def _one_of(value: Any, choices: tuple[str, ...], where: str) -> None:
    if not isinstance(value, str) or value not in choices:
        raise GenomeError(
            f"{where}: found {describe(value)}; expected one of {', '.join(choices)}"
            f"{near(value, choices)}."
        )


def _node(data: Any, index: int, where: str) -> Node:
    keys = _mapping(data, where, {"op", "inputs", "params"})
    op, inputs, params = keys.get("op"), keys.get("inputs"), keys.get("params", {})
    if not isinstance(op, str):
        raise GenomeError(f"{where}: op is {describe(op)}; expected the name of a primitive.")
    if not isinstance(inputs, list):
        raise GenomeError(f"{where} ({op}): inputs is {describe(inputs)}; expected a list.")
    if len(inputs) > MAX_INPUTS:
        raise GenomeError(
            f"{where} ({op}): has {len(inputs)} inputs; expected at most {MAX_INPUTS}."
        )
    if not isinstance(params, dict):
        raise GenomeError(f"{where} ({op}): params is {describe(params)}; expected a mapping.")
    refs = tuple(_ref(ref, index, f"{where} ({op})") for ref in inputs)
    pairs = tuple(
        sorted((name, _param(value, f"{where} ({op}), {name}")) for name, value in params.items())
    )
    return Node(op, refs, pairs)


def _ref(ref: Any, index: int, where: str) -> Ref:
    if isinstance(ref, str) and ref in STREAMS:
        return ref
    if isinstance(ref, int) and not isinstance(ref, bool) and 0 <= ref < index:
        return ref
    nodes = f"an earlier node (0 to {index - 1})" if index else "no node, since this is the first"
    raise GenomeError(f"{where}: reads {describe(ref)}; expected 'q', 'k', 'v' or {nodes}.")


def _param(value: Any, where: str) -> ParamValue:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise GenomeError(f"{where}: found {describe(value)}; expected a number, a word or a flag.")


def _projections(data: Any, where: str) -> Projections:
    keys = _mapping(data, where, {f.name for f in fields(Projections)})
    for name, value in keys.items():
        if name in FLAGS:
            if not isinstance(value, bool):
                raise GenomeError(
                    f"{where}, {name}: found {describe(value)}; expected true or false."
                )
        else:
            _one_of(value, LABELS[name], f"{where}, {name}")
    return Projections(**keys)


def check_visibility(name: str, value: Any) -> None:
    """Check a field of ``Visibility``.

    Raises:
        ValueError: the value is outside its range; the message states the range.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    least, null = (1, " or null") if name == "window" else (0, "")
    if not (is_whole and least <= value <= MAX_WINDOW) and not (null and value is None):
        raise ValueError(
            f"{name}: found {describe(value)}; expected a whole number from {least} to "
            f"{MAX_WINDOW}{null}."
        )


def _visibility(data: Any, where: str) -> Visibility:
    keys = _mapping(data, where, {f.name for f in fields(Visibility)})
    for name, value in keys.items():
        try:
            check_visibility(name, value)
        except ValueError as error:
            raise GenomeError(f"{where}, {error}") from None
    return Visibility(**keys)
