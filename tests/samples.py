"""Random genomes of the spaces that come with nas."""

from __future__ import annotations

from functools import cache

import numpy as np

from nas.genome import Genome
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation


@cache
def samples(space_name: str, count: int, seed: int = 5) -> tuple[Genome, ...]:
    """Samples of a space, each mutated twice."""
    space = load_space(space_name)
    variation, rng = Variation(space, load_policy(space.policy)), np.random.default_rng(seed)
    return tuple(variation.mutate(variation.sample(rng), rng, 2)[0] for _ in range(count))
