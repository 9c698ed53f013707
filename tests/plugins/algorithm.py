"""An algorithm: hill climbing in many places, by random weights over the objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.searching.algorithm import ALGORITHMS
from nas.searching.results import Attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from nas.searching.algorithm import SearchContext
    from nas.searching.results import TrialResult


@ALGORITHMS.register("hill-climbing")
class HillClimbing:
    """Mutate what is best under weights that are drawn anew for each proposal."""

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self.seen = 0
        self.known: list[TrialResult] = []

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Remember what ended well."""
        self.seen += len(results)
        self.known += [result for result in results if result.costs is not None]

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """A mutant of the best; samples first, and where mutation finds nothing new."""
        operators = self.context.operators
        if len(self.known) < self.context.population or num_failed > 5:
            return Attempt(operators.sample(rng), "sample")
        weights = rng.dirichlet([1.0] * len(self.context.objectives))
        best = min(self.known, key=lambda one: self._weighted(one, weights))
        child, operator = operators.mutate(best.genome, rng, strength=1 + num_failed)
        return Attempt(child, operator, parents=(best.digest,))

    def _weighted(self, one: TrialResult, weights: np.ndarray) -> float:
        """The costs, each over its largest so far, as one number."""
        assert one.costs is not None
        largest = [max(abs(o.costs[i]) for o in self.known if o.costs) for i in range(len(weights))]
        return sum(
            weight * cost / (most or 1.0)
            for weight, cost, most in zip(weights, one.costs, largest, strict=True)
        )
