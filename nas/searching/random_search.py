"""Random search: type-directed samples of the space, the baseline of all algorithms.

Li and Talwalkar 2019, "Random search and reproducibility for neural architecture search".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nas.searching.algorithm import ALGORITHMS, SearchContext
from nas.searching.results import Attempt, TrialResult


@ALGORITHMS.register("random")
class RandomSearch:
    """Random samples of the space."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Ignore the results."""

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw a sample."""
        return self._context.sample(rng)
