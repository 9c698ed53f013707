"""The class of named mechanisms, their registry, and functions to define a mechanism.

    @named(paper="Shazeer 2019")
    def mqa() -> Genome:
        "One key and value head. ... equations, shapes, decisions ..."
        return dot_product(kv_heads="one")

The function's name is the mechanism's name. Its docstring is the mechanism's ``reading``, that is,
how the paper was understood: a summary line, then equations, shapes and decisions. Head counts are
fractions of the backbone's heads.

Notation of all readings: n tokens, d the width of the backbone, H its heads, d_h = d / H, X the
block's input (n x d), x_i a token. Subscripts number tokens unless stated otherwise. Lines have at
most 80 columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nas.common.errors import GenomeError
from nas.common.registry import Registry
from nas.genome import ALL, Genome, Node, Placement, Projections
from nas.genome.primitives import check_vocabulary
from nas.genome.types import infer


@dataclass(frozen=True)
class NamedMechanism:
    """A genome with a name and a source.

    Attributes:
        paper: source such as "Shazeer 2019", or "control" for a baseline.
        reading: description of the mechanism: equations, shapes, and decisions where the paper is
            ambiguous or wrong.
    """

    name: str
    genome: Genome
    paper: str
    reading: str

    @property
    def about(self) -> str:
        """A one-line description: the first line of ``reading``, without its full stop."""
        return self.reading.split("\n", 1)[0].removesuffix(".")


def _check(entry: NamedMechanism) -> None:
    genome = Genome.from_dict(entry.genome.to_dict(), entry.name)
    for problem in infer(check_vocabulary(genome, entry.name)).problems:
        raise GenomeError(f"{entry.name}: {problem.found}; expected {problem.expected}")


MECHANISMS: Final[Registry[NamedMechanism]] = Registry(
    "mechanism", "nas.mechanisms", error=GenomeError, check=_check
)


def named(paper: str) -> Callable[[Callable[[], Genome]], NamedMechanism]:
    """Return a decorator that registers a function as a mechanism; the function returns a genome.

    Args:
        paper: source such as "Shazeer 2019", or "control" for a baseline.
    """

    def make(build: Callable[[], Genome]) -> NamedMechanism:
        name = build.__name__
        entry = NamedMechanism(name, build(), paper, inspect.getdoc(build) or "")
        return MECHANISMS.register(name)(entry)

    return make


def graph(*nodes: tuple[Any, ...], placement: Placement = ALL, **projections: Any) -> Genome:
    """Return the genome of nodes given as tuples (op, inputs) or (op, inputs, params).

    Args:
        nodes: nodes in topological order; the last node is the output.
        projections: fields of ``Projections``.
    """
    built = tuple(
        Node(op, tuple(inputs), tuple(sorted(params[0].items())) if params else ())
        for op, inputs, *params in nodes
    )
    return Genome(built, Projections(**projections), placement)


def scored(op: str, **keywords: Any) -> Genome:
    """Return standard attention with the primitive ``op`` in place of the dot product.

    Args:
        keywords: keyword arguments of ``graph``.
    """
    return graph((op, "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]), **keywords)


def dot_product(**projections: Any) -> Genome:
    """Return standard attention with the given fields of ``Projections``."""
    return scored("scaled_dot_product", **projections)
