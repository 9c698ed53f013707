"""The contract of a search algorithm, what all of them are made from, and their names.

All are driven alike: ``ask`` gives a generation's proposals, ``tell`` takes the results of the new
ones. Everything an algorithm knows follows from its seed and from what it was told, so that a run
is resumed by asking and telling again.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from nas.config import near
from nas.errors import ConfigError
from nas.search.novelty import Attempt, fill

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from nas.genome import Genome
    from nas.mechanisms import Mechanism
    from nas.search.novelty import Novelty, Proposed

# One number an objective, lower is better; None for a candidate whose training failed.
Costs: TypeAlias = tuple[float, ...]
Result: TypeAlias = Costs | None

# Failed attempts in a row after which an offspring is mutated harder, and after which half of the
# attempts are fresh samples.
PATIENCE: Final = 8
MAX_STRENGTH: Final = 5
SAMPLE_AFTER: Final = PATIENCE * (MAX_STRENGTH - 1)

ALGORITHMS: Final[Mapping[str, str]] = {
    "nsga2": "nas.search.nsga2:Nsga2",
    "random": "nas.search.random_search:RandomSearch",
    "regularized-evolution": "nas.search.aging:RegularizedEvolution",
}


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


class Algorithm(Protocol):
    """Proposes genomes and learns from their results.

    Contract: ``ask`` and ``tell`` take turns. ``ask`` gives a generation: everything tried, in
    order, among it as many new proposals as the population's size; fewer mean that the space is
    exhausted. ``tell`` takes one result for each new proposal, in the same order. Two objects made
    alike and told alike ask alike. The object can be pickled.
    """

    def ask(self) -> list[Proposed]:
        """Propose the next generation."""
        ...

    def tell(self, results: Sequence[Result]) -> None:
        """Learn the costs of the new proposals; None for one that failed."""
        ...


@dataclass(frozen=True)
class Materials:
    """What an algorithm is made from.

    Args:
        population: new candidates a generation.
        seed: of every draw that the algorithm makes.
        mechanisms: proposed first.
    """

    operators: Operators
    novelty: Novelty
    mechanisms: tuple[Mechanism, ...]
    population: int
    num_objectives: int
    seed: int

    def first_generation(self, rng: np.random.Generator) -> list[Proposed]:
        """The named mechanisms, as many as the population holds, then samples."""
        waiting = [Attempt(m.genome, f"mechanism:{m.name}") for m in self.mechanisms]
        waiting.reverse()
        return fill(
            self.novelty,
            self.population,
            lambda _: waiting.pop() if waiting else self.sample(rng),
        )

    def sample(self, rng: np.random.Generator) -> Attempt:
        """A fresh sample of the space."""
        return Attempt(self.operators.sample(rng), "sample")

    def mutant(self, parent: Proposed, rng: np.random.Generator, num_failed: int) -> Attempt:
        """A mutant, stronger and at last half the time a sample, the more attempts have failed."""
        if num_failed >= SAMPLE_AFTER and rng.random() < 0.5:
            return self.sample(rng)
        strength = min(MAX_STRENGTH, 1 + num_failed // PATIENCE)
        genome, name = self.operators.mutate(parent.genome, rng, strength)
        # Where no operator applies, variation gives a sample: it has no parent.
        return Attempt(genome, name, () if name == "sample" else (parent.digest,))


def check_algorithm(name: str) -> None:
    """Refuse a name that no algorithm has.

    Raises:
        ConfigError: names the nearest one.
    """
    if name not in ALGORITHMS:
        raise ConfigError(
            f"there is no algorithm {name!r}{near(name, ALGORITHMS)}; "
            f"expected one of {', '.join(ALGORITHMS)}."
        )


def make_algorithm(name: str, materials: Materials) -> Algorithm:
    """Make an algorithm by name; see ``check_algorithm``."""
    check_algorithm(name)
    # By name, so that a run imports only what it uses.
    module, _, attribute = ALGORITHMS[name].partition(":")
    algorithm: Algorithm = getattr(import_module(module), attribute)(materials)
    return algorithm
