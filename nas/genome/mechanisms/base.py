"""What a named mechanism is, and how one is written.

    @named(paper="Shazeer 2019")
    def mqa() -> Genome:
        "One key and value head. ... equations, shapes, readings ..."
        return dot_product(kv_heads="one")

The function's name becomes the mechanism's, its docstring the reading: a line of what it is, then
equations, shapes, decisions; what it costs `nas cost` counts. Head counts are shares of the
backbone's heads, so that a mechanism exists at every size that its shares divide.

The readings share their letters: n tokens, d the width of the backbone, H its heads, d_h = d / H,
X the block's input (n x d), x_i a token, subscripts for tokens unless said otherwise. A reading is
set for 80 columns, as a terminal shows it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from nas.common.errors import GenomeError
from nas.common.registry import Registry
from nas.genome import Genome, Node, Projections
from nas.genome.primitives import check_vocabulary
from nas.genome.types import infer


@dataclass(frozen=True)
class NamedMechanism:
    """A genome with a name.

    Attributes:
        paper: where it comes from, or "control".
        reading: equations, shapes, and what was decided where the paper leaves it open.
    """

    name: str
    genome: Genome
    paper: str
    reading: str

    @property
    def about(self) -> str:
        """The reading's first line, without its full stop."""
        return self.reading.split("\n", 1)[0].removesuffix(".")


def _check(found: NamedMechanism) -> None:
    """Refuse a genome that is no mechanism: it would break every list of them."""
    genome = Genome.from_dict(found.genome.to_dict(), found.name)
    for problem in infer(check_vocabulary(genome, found.name)).problems:
        raise GenomeError(f"{found.name}: {problem.found}; expected {problem.expected}")


MECHANISMS: Final[Registry[NamedMechanism]] = Registry(
    "mechanism", "nas.mechanisms", error=GenomeError, check=_check
)


def named(paper: str) -> Callable[[Callable[[], Genome]], NamedMechanism]:
    """Register the mechanism that a function returns the genome of."""

    def make(build: Callable[[], Genome]) -> NamedMechanism:
        name = build.__name__
        found = NamedMechanism(name, build(), paper, inspect.getdoc(build) or "")
        return MECHANISMS.register(name)(found)

    return make


def graph(*nodes: tuple[Any, ...], placement: str = "all", **projections: Any) -> Genome:
    """A genome from (op, inputs) or (op, inputs, params) tuples; the last one is the output."""
    built = tuple(
        Node(op, tuple(inputs), tuple(sorted(params[0].items())) if params else ())
        for op, inputs, *params in nodes
    )
    return Genome(built, Projections(**projections), placement)


def scored(op: str, **keywords: Any) -> Genome:
    """Standard attention with another score in place of the dot product."""
    return graph((op, "qk"), ("softmax", [0]), ("weighted_sum", [1, "v"]), **keywords)


def dot_product(**projections: Any) -> Genome:
    """Standard attention with other projections around it."""
    return scored("scaled_dot_product", **projections)
