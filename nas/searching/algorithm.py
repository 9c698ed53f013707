"""The contract of a search algorithm: a fold over results, and a draw.

The state of an algorithm is a function of what it was told, in order of submission; proposal t
comes from that state and a random generator of its own, derived from (seed, t). So the same record
gives the same proposals wherever and however often it is read: resuming is reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from nas.common.registry import Registry
from nas.searching.told import Attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nas.common.objectives import Objective
    from nas.genome import Genome
    from nas.searching.archive import Archive
    from nas.searching.judging import Judge
    from nas.searching.told import Told
    from nas.space.variation import Variation

# What a generator is for: drawing a proposal, or breaking ties when its result is told.
PROPOSE: Final = 0
TELL: Final = 1

# Failed attempts in a row after which an offspring is mutated harder, and after which half of the
# attempts are fresh samples.
PATIENCE: Final = 8
MAX_STRENGTH: Final = 5
SAMPLE_AFTER: Final = PATIENCE * (MAX_STRENGTH - 1)


@dataclass(frozen=True)
class Materials:
    """What an algorithm is made from.

    Attributes:
        mechanisms: (name, genome), proposed first; samples fill the first generation.
        population: proposals a generation.
        seed: of every draw; see ``generator``.
        judge: says what an attempt comes to, and whether it is new.
        archive: all results so far, and what is believed of them; told before the algorithm is.
    """

    operators: Variation
    mechanisms: tuple[tuple[str, Genome], ...]
    population: int
    objectives: tuple[Objective, ...]
    seed: int
    judge: Judge
    archive: Archive

    def generator(self, number: int, purpose: int = PROPOSE) -> np.random.Generator:
        """A generator of a proposal's own: draws for one never shift those for another."""
        return np.random.default_rng([self.seed, number, purpose])

    def sample(self, rng: np.random.Generator) -> Attempt:
        """A fresh sample of the space."""
        return Attempt(self.operators.sample(rng), "sample")

    def mutant(self, parent: Told, rng: np.random.Generator, num_failed: int) -> Attempt:
        """A mutant, stronger and at last half the time a sample, the more attempts have failed."""
        if num_failed >= SAMPLE_AFTER and rng.random() < 0.5:
            return self.sample(rng)
        strength = min(MAX_STRENGTH, 1 + num_failed // PATIENCE)
        genome, operator = self.operators.mutate(parent.genome, rng, strength)
        # Where no operator applies, variation gives a sample: it has no parent.
        return Attempt(genome, operator, parents=() if operator == "sample" else (parent.digest,))


class Algorithm(Protocol):
    """Proposes genomes and learns from their results.

    The first generation is not asked of it: named mechanisms, then samples. Contract: ``tell``
    takes results in order of submission, some at a time; how they are cut into calls changes
    nothing but for what the algorithm says of itself (NSGA-II survives a generation at a time).
    ``propose`` draws from ``rng`` alone and changes nothing.
    """

    def tell(self, told: Sequence[Told]) -> None:
        """Learn the results of earlier proposals."""
        ...

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw an attempt; ``num_failed`` in a row before it were nothing new.

        One whose operator is ``REPEAT`` asks for another training of a mechanism that is known.
        """
        ...


ALGORITHMS: Final[Registry[Callable[[Materials], Algorithm]]] = Registry(
    "algorithm",
    "nas.algorithms",
    modules=(
        "nas.searching.nsga2",
        "nas.searching.random_search",
        "nas.searching.regularized_evolution",
        "nas.searching.local_search",
        "nas.searching.surrogate",
    ),
)
