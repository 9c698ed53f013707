"""The class of named mechanisms, their registry, and functions to define a mechanism.

    @named(paper="Shazeer 2019")
    def mqa() -> Genome:
        "One key and value head. ... equations, shapes, decisions ..."
        return scored(kv_heads="one")

The function's name is the mechanism's name, and its docstring the mechanism's ``reading``: a
summary line, then equations, shapes and decisions, in lines of at most 80 columns. Notation: n
tokens, d the width of the backbone, H its heads, d_h = d / H, X the block's input (n x d), x_i a
token. Subscripts number tokens unless stated otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nas.common.errors import GenomeError
from nas.common.registry import Registry
from nas.genome import ALL, Genome, Node, ParamValue, Placement, Projections, Ref, Visibility
from nas.genome.primitives import check_vocabulary
from nas.genome.types import infer


@dataclass(frozen=True)
class NamedMechanism:
    """A genome with a name, its source ``paper``, and its ``reading``."""

    name: str
    genome: Genome
    paper: str
    reading: str

    @property
    def about(self) -> str:
        """The first line of ``reading``, without its full stop."""
        return self.reading.split("\n", 1)[0].removesuffix(".")


def _check(entry: NamedMechanism) -> None:
    genome = Genome.from_dict(entry.genome.to_dict(), entry.name)
    for problem in infer(check_vocabulary(genome, entry.name)).problems:
        raise GenomeError(f"{entry.name}: {problem.found}; expected {problem.expected}")


MECHANISMS: Final[Registry[NamedMechanism]] = Registry(
    "mechanism", "nas.mechanisms", error=GenomeError, check=_check
)


def named(paper: str) -> Callable[[Callable[[], Genome]], NamedMechanism]:
    """Return a decorator that registers a function, which returns a genome, as a mechanism.

    ``paper`` is the source, such as "Shazeer 2019", or "control" for a baseline.
    """

    def make(build: Callable[[], Genome]) -> NamedMechanism:
        name = build.__name__
        entry = NamedMechanism(name, build(), paper, inspect.getdoc(build) or "")
        return MECHANISMS.register(name, build.__module__)(entry)

    return make


class Graph:
    """A genome that is written node by node; each method returns the index of its last node.

    g = Graph()
    gates = g.add("forget_gate", "k", form="exponential")
    scores = g.add("decay", g.add("scaled_dot_product", "q", "k"), gates)
    return g.genome(g.attend(scores, "v"), kv_heads="one")
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, op: str, *inputs: Ref, **params: ParamValue) -> int:
        """Add a node; ``inputs`` are streams ("q", "k", "v") and indices of earlier nodes."""
        self.nodes.append(Node(op, inputs, tuple(sorted(params.items()))))
        return len(self.nodes) - 1

    def convolve(self, stream: str) -> int:
        """Add a short convolution of a stream with kernel 4, initially the identity, and swish."""
        return self.add("silu", self.add("short_conv", stream, kernel=4, init="identity"))

    def attend(self, scores: int, values: Ref, normaliser: str = "softmax") -> int:
        """Add a normaliser of the scores, and the sum of the values with the resulting weights."""
        return self.add("weighted_sum", self.add(normaliser, scores), values)

    def sum(self, scores: int, values: Ref) -> int:
        """Add the sum of the values times the scores, as in linear attention."""
        return self.add("weighted_sum", self.add("softmax_free", scores, divide=False), values)

    def genome(
        self,
        output: int,
        *,
        placement: Placement = ALL,
        visibility: Visibility | None = None,
        **projections: Any,
    ) -> Genome:
        """Return the genome; ``output`` is the index of its last node."""
        assert output == len(self.nodes) - 1, "the last node is the output"
        mask = visibility or Visibility()
        return Genome(tuple(self.nodes), Projections(**projections), placement, mask)


def scored(
    score: str = "scaled_dot_product", normaliser: str = "softmax", **keywords: Any
) -> Genome:
    """Return attention with these primitives; ``keywords`` are those of ``Graph.genome``."""
    g = Graph()
    return g.genome(g.attend(g.add(score, "q", "k"), "v", normaliser), **keywords)
