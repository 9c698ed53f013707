"""The contract of a search algorithm: a fold over results, and a draw.

The state of an algorithm is a function of what it was told, in order of submission; proposal t
comes from that state and a random generator of its own, derived from (seed, t). So the same record
gives the same proposals wherever and however often it is read: resuming is reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from nas.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from nas.genome import Genome

# One number an objective, lower is better; None for a candidate whose training failed.
Costs: TypeAlias = "tuple[float, ...]"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A genome that an operator made.

    Attributes:
        operator: what made it.
        name: of the mechanism, where it is a named one.
        parents: digests of the genomes that it was made from.
    """

    genome: Genome
    operator: str
    name: str | None = None
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """A proposal and its result: what an algorithm learns from.

    Attributes:
        number: of the proposal, from 0.
        costs: None where its training failed.
    """

    number: int
    genome: Genome
    digest: str
    costs: Costs | None


class Operators(Protocol):
    """Variation as algorithms use it: pure functions of genome and random generator."""

    def sample(self, rng: np.random.Generator) -> Genome:
        """Draw a genome of the space."""
        ...

    def mutate(
        self, genome: Genome, rng: np.random.Generator, strength: int = 1
    ) -> tuple[Genome, str]:
        """Change a genome ``strength`` times; give it and the operators' names."""
        ...

    def crossover(self, a: Genome, b: Genome, rng: np.random.Generator) -> tuple[Genome, str]:
        """Join two genomes; give the child and the operator's name."""
        ...


@dataclass(frozen=True)
class Materials:
    """What an algorithm is made from.

    Attributes:
        mechanisms: (name, genome), proposed first.
        population: new candidates a generation.
        seed: of every draw; see ``generator``.
    """

    operators: Operators
    mechanisms: tuple[tuple[str, Genome], ...]
    population: int
    num_objectives: int
    seed: int


class Algorithm(Protocol):
    """Proposes genomes and learns from their results.

    Contract: ``tell`` takes results in order of submission, some at a time; how they are cut into
    calls changes nothing but for what the algorithm says of itself (NSGA-II survives a generation
    at a time). ``propose`` draws from ``rng`` alone and changes nothing.
    """

    def tell(self, told: Sequence[Told]) -> None:
        """Learn the results of earlier proposals."""
        ...

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw an attempt; ``num_failed`` in a row before it were nothing new."""
        ...


ALGORITHMS: Final[Registry[Callable[[Materials], Algorithm]]] = Registry(
    "algorithm",
    "nas.algorithms",
    modules=(
        "nas.searching.nsga2",
        "nas.searching.random_search",
        "nas.searching.regularized_evolution",
    ),
)
