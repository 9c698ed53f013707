"""An algorithm: hill climbing in many places, by random weights over the objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.searching.algorithm import ALGORITHMS
from nas.searching.told import Attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from nas.searching.algorithm import Materials
    from nas.searching.told import Told


@ALGORITHMS.register("hill-climbing")
class HillClimbing:
    """Mutate what is best under weights that are drawn anew for each proposal."""

    def __init__(self, materials: Materials) -> None:
        self.materials = materials
        self.seen = 0
        self.known: list[Told] = []

    def tell(self, told: Sequence[Told]) -> None:
        """Remember what ended well."""
        self.seen += len(told)
        self.known += [one for one in told if one.costs is not None]

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """A mutant of the best; samples first, and where mutation finds nothing new."""
        operators = self.materials.operators
        if len(self.known) < self.materials.population or num_failed > 5:
            return Attempt(operators.sample(rng), "sample")
        weights = rng.dirichlet([1.0] * len(self.materials.objectives))
        best = min(self.known, key=lambda one: self._weighted(one, weights))
        child, operator = operators.mutate(best.genome, rng, strength=1 + num_failed)
        return Attempt(child, operator, parents=(best.digest,))

    def _weighted(self, one: Told, weights: np.ndarray) -> float:
        """The costs, each over its largest so far, as one number."""
        assert one.costs is not None
        largest = [max(abs(o.costs[i]) for o in self.known if o.costs) for i in range(len(weights))]
        return sum(
            weight * cost / (most or 1.0)
            for weight, cost, most in zip(weights, one.costs, largest, strict=True)
        )
