"""An algorithm: hill climbing with random weights of the objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.searching.algorithm import ALGORITHMS, Attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from nas.searching.algorithm import SearchContext, TrialResult


@ALGORITHMS.register("hill-climbing")
class HillClimbing:
    """Mutate the best result under weights drawn for each proposal."""

    def __init__(self, context: SearchContext) -> None:
        self.context = context
        self.seen = 0
        self.successful: list[TrialResult] = []

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Keep the successful results."""
        self.seen += len(results)
        self.successful += [result for result in results if result.costs is not None]

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """A mutant of the best; a sample at first, and after six failed attempts."""
        operators = self.context.operators
        if len(self.successful) < self.context.population or num_failed > 5:
            return Attempt(operators.sample(rng), "sample")
        weights = rng.dirichlet([1.0] * len(self.context.objectives))
        best = min(self.successful, key=lambda result: self._weighted(result, weights))
        child, operator = operators.mutate(best.genome, rng, strength=1 + num_failed)
        return Attempt(child, operator, parents=(best.digest,))

    def _weighted(self, result: TrialResult, weights: np.ndarray) -> float:
        """The weighted sum of the costs, each divided by its largest absolute value so far."""
        assert result.costs is not None
        costs = [known.costs for known in self.successful if known.costs]
        largest = [max(abs(each[i]) for each in costs) for i in range(len(weights))]
        return sum(
            weight * cost / (most or 1.0)
            for weight, cost, most in zip(weights, result.costs, largest, strict=True)
        )
