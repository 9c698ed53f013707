"""Random search: type-directed samples of the space, the baseline that every search must beat.

Li and Talwalkar 2019, "Random search and reproducibility for neural architecture search".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nas.search.novelty import fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.search.algorithm import Materials, Result
    from nas.search.novelty import Proposed


class RandomSearch:
    """The named mechanisms, then samples; results change nothing."""

    def __init__(self, materials: Materials) -> None:
        self._materials = materials
        self._rng = np.random.default_rng(materials.seed)
        self._is_first = True

    def ask(self) -> list[Proposed]:
        """Propose new samples."""
        materials, rng = self._materials, self._rng
        if self._is_first:
            self._is_first = False
            return materials.first_generation(rng)
        return fill(materials.novelty, materials.population, lambda _: materials.sample(rng))

    def tell(self, results: Sequence[Result]) -> None:
        """Learn nothing."""
