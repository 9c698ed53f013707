"""Encodings of the spaces with recorded tables, as categorical choices.

An optimiser that knows no genomes sees a space as a product of categorical choices. Each choice
changes one part of the mechanism. Choices without effect are ignored, as in any flat encoding, so
several assignments can mean the same mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from nas.common.objectives import Metric
from nas.genome import FLAGS, Genome, Node, Projections, Ref
from nas.genome.placement import PLACEMENTS

Assignment = Mapping[str, str]
Choices = Mapping[str, tuple[str, ...]]

EDGES: Final = (
    "left", "right", "left+right", "value", "left+value", "right+value", "left+right+value",
    "output",
)  # fmt: skip
SIDES: Final = ("q", "k", "v")
EITHER: Final = ("yes", "no")
ATTENTION: Final[Choices] = {
    "normaliser": ("softmax", "softmax_free", "uniform"),
    "left": SIDES,
    "right": SIDES,
    "extra": ("none", "rope", "short_conv", "output_gate"),
    "edges": EDGES,
    "second": ("none", "rope", "short_conv", "output_gate"),
    "second_edge": ("value", "output"),
    **dict.fromkeys(FLAGS, EITHER),
}
RECALL: Final[Choices] = {
    "normaliser": ("softmax", "sigmoid", "softmax_free"),
    "left": SIDES,
    "right": SIDES,
    "extra": ("none", "short_conv"),
    "edges": EDGES,
    **dict.fromkeys(FLAGS, EITHER),
    "has_wv": ("yes",),
}
BYTES: Final[Choices] = {
    "q_conv": EITHER,
    "q_rope": EITHER,
    "k_conv": EITHER,
    "k_rope": EITHER,
    "v_conv": EITHER,
    "out_conv": EITHER,
    "gate": EITHER,
    "q_heads": ("all", "1/2"),
    "kv_heads": ("all", "1/4"),
    "placement": ("all", "first"),
}


@dataclass(frozen=True)
class Encoding:
    """The categorical choices of a space.

    Attributes:
        choices: values of each choice, by name.
        genome: returns the genome of an assignment of values to all choices.
        assignments: yields all assignments that differ in a choice with an effect.
        metric: metric of the tables of this space.
        tolerance: difference of the metric that is without importance.
        region: worst value of the metric, and largest cost in multiples of standard attention's, of
            the mechanisms in a front; None for no limits.
    """

    choices: Choices
    genome: Callable[[Assignment], Genome]
    assignments: Callable[[Choices], Iterator[Assignment]]
    metric: Metric
    tolerance: float
    region: tuple[float, float] | None = None


def attention_genome(assignment: Assignment) -> Genome:
    """Return the genome of an assignment of ``ATTENTION`` or ``RECALL``.

    The choices are the two inputs of the scores, their normaliser, a further operation and its
    edges, a second operation for the plain mean, and the four projections. The further operation
    is put on the named edges that come from the same stream.
    """
    nodes: list[Node] = []

    def add(op: str, *inputs: Ref) -> int:
        nodes.append(Node(op, inputs))
        return len(nodes) - 1

    extras = [(assignment["extra"], assignment["edges"])]
    edges: dict[str, Ref] = {side: assignment[side] for side in ("left", "right")}
    if assignment["normaliser"] == "uniform":
        edges = {}
        extras.append((assignment["second"], assignment["second_edge"]))
    edges["value"] = "v"
    for op, names in extras:
        if op != "none" and names != "output":
            edge_names = [name for name in names.split("+") if name in edges] or ["value"]
            stream = edges[edge_names[0]]
            node = add(op, stream)
            edges.update({name: node for name in edge_names if edges[name] == stream})
    if assignment["normaliser"] == "uniform":
        weights = add("uniform", "v")
    else:
        scores = add("scaled_dot_product", edges["left"], edges["right"])
        weights = add(assignment["normaliser"], scores)
    out = add("weighted_sum", weights, edges["value"])
    for op, names in extras:
        if op != "none" and names == "output":
            out = add(op, out)
    flags = {flag: assignment[flag] == "yes" for flag in FLAGS}
    return Genome(tuple(nodes), Projections(**flags))


def attention_assignments(choices: Choices) -> Iterator[Assignment]:
    """Yield all assignments of ``ATTENTION`` or ``RECALL`` that differ in a choice with effect."""
    fields = ("normaliser", "left", "right", "extra", "edges", *FLAGS)
    plain = {name: values[0] for name, values in choices.items()}
    for values in product(*(choices[name] for name in fields)):
        if values[0] != "uniform":
            yield {**plain, **dict(zip(fields, values, strict=True))}
    if "uniform" in choices["normaliser"]:
        fields = ("extra", "edges", "second", "second_edge", *FLAGS)
        second_edges = choices["second_edge"]
        rest = (choices[name] for name in fields[2:])
        for values in product(choices["extra"], second_edges, *rest):
            named = dict(zip(fields, values, strict=True))
            yield {**plain, "normaliser": "uniform", **named}


def bytes_genome(assignment: Assignment) -> Genome:
    """Return the genome of an assignment of ``BYTES``.

    Each of queries, keys, values and output may pass a short convolution; queries and keys may then
    be rotated by position; a gate may end the mechanism.
    """
    nodes: list[Node] = []

    def add(op: str, *inputs: Ref, **params: int | str) -> int:
        nodes.append(Node(op, inputs, tuple(params.items())))
        return len(nodes) - 1

    def changed(ref: Ref, name: str) -> Ref:
        if assignment[f"{name}_conv"] == "yes":
            ref = add("short_conv", ref, init="identity", kernel=4)
        return add("rope", ref) if assignment.get(f"{name}_rope") == "yes" else ref

    scores = add("scaled_dot_product", changed("q", "q"), changed("k", "k"))
    weights = add("softmax", scores)
    out = changed(add("weighted_sum", weights, changed("v", "v")), "out")
    if assignment["gate"] == "yes":
        add("output_gate", out)
    heads = {name: assignment[name] for name in ("q_heads", "kv_heads")}
    return Genome(tuple(nodes), Projections(**heads), PLACEMENTS[assignment["placement"]])


def all_assignments(choices: Choices) -> Iterator[Assignment]:
    """Yield the product of all choices."""
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


ENCODINGS: Final[Mapping[str, Encoding]] = {
    "attention_bench": Encoding(
        ATTENTION,
        attention_genome,
        attention_assignments,
        Metric("accuracy", "fraction", "max", chance=1 / 10, ideal=1.0),
        tolerance=0.005,
    ),
    "recall_bench": Encoding(
        RECALL,
        attention_genome,
        attention_assignments,
        Metric("accuracy", "fraction", "max", chance=1 / 16, ideal=1.0),
        tolerance=0.005,
    ),
    "bytes_bench": Encoding(
        BYTES,
        bytes_genome,
        all_assignments,
        Metric("bits_per_byte", "bit", "min", chance=4.774, ideal=0.0),
        tolerance=0.03,
        # Four fifths of the way from the plain mean (3.330 bits) to standard attention (2.775).
        region=(2.886, 1.5),
    ),
}
"""The encoding of each space with recorded tables, by the name of the space."""
