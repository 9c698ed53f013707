"""Random search: type-directed samples of the space, the baseline that every search must beat.

Li and Talwalkar 2019, "Random search and reproducibility for neural architecture search".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.searching.algorithm import ALGORITHMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from nas.searching.algorithm import Materials
    from nas.searching.told import Attempt, Told


@ALGORITHMS.register("random")
class RandomSearch:
    """Samples; results change nothing."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials

    def tell(self, told: Sequence[Told]) -> None:
        """Learn nothing."""

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Draw a sample."""
        return self._materials.sample(rng)
