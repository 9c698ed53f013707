"""A model of a metric of mechanisms, which predicts it from features of their genomes.

The same model screens proposals, selects mechanisms to train again, and computes estimates.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final, Self

import numpy as np

from nas.genome import Genome
from nas.searching.gaussian_process import LOG, Features, Observations, Posterior, num_fitted
from nas.searching.power_transform import Array

MOST_FITS: Final = 4  # fits that are kept for the archives of a search, which differ by the lag


def features(genome: Genome, costs: Mapping[str, float]) -> dict[str, float]:
    """Return the features of a genome in normal form, by name. A missing feature is 0.

    Features are logarithms of the numbers of operations, of parameter values, of edges and of the
    options of the genome (projections, visibility, placement), and logarithms of costs. With plain
    numbers, the linear part of the model would expect the same effect of each further copy.
    """
    names = [node.op for node in genome.nodes]
    counts: Counter[str] = Counter(names)
    for node in genome.nodes:
        counts.update(f"{node.op}.{name}={value}" for name, value in node.params)
        for slot, ref in enumerate(node.inputs):
            source = ref if isinstance(ref, str) else names[ref]
            counts[f"{source} > {node.op}.{slot}"] += 1
    options = {**asdict(genome.projections), **asdict(genome.visibility)}
    options |= genome.placement.to_mapping()
    counts.update(f"{name}={value}" for name, value in options.items())
    logs = {f"{LOG}{name}": math.log1p(value) for name, value in costs.items()}
    numbers = {name: math.log2(1 + count) for name, count in counts.items()}
    # One text for each name, since a long search has features of many mechanisms.
    return {sys.intern(name): value for name, value in (numbers | logs).items()}


class NoisyGP:
    """A Gaussian process of one metric, in its unit; ``observed`` are all trainings, by key."""

    def __init__(self, fits: dict[int, Posterior] | None = None) -> None:
        self.observed: dict[str, Observations] = {}
        # By number of trainings; shared with another model of the same trainings.
        self._fits = {} if fits is None else fits
        self._order: list[str] = []  # keys of the trainings, in order
        self._posterior: Posterior | None = None
        self._estimates: dict[str, tuple[float, float]] = {}  # by ``_posterior``

    def tell(
        self,
        key: str,
        features: Features,
        score: float,
        *,
        objectives: Sequence[float] = (),
        is_censored: bool = False,
    ) -> None:
        """Add one training of a mechanism, see `Observations`."""
        observations = self.observed.setdefault(key, Observations(features, objectives))
        observations.scores.append(score)
        observations.is_censored |= is_censored
        self._order.append(key)
        self._estimates.pop(key, None)

    @property
    def noise(self) -> float:
        """The standard deviation of the metric between trainings that differ only in the seed."""
        return math.sqrt(self.posterior.kernel.noise)

    def estimate(self, keys: Sequence[str]) -> tuple[Array, Array]:
        """Return posterior mean and standard error of the quality of each trained mechanism."""
        posterior = self.posterior
        if missing := [key for key in keys if key not in self._estimates]:
            mean, variance = posterior.estimate({key: self.observed[key] for key in missing})
            columns = posterior.transform.moments(mean, np.sqrt(np.maximum(variance, 0.0)))
            pairs = zip(*(column.tolist() for column in columns), strict=True)
            self._estimates.update(zip(missing, pairs, strict=True))
        rows = np.array([self._estimates[key] for key in keys]).reshape(-1, 2)
        return rows[:, 0], rows[:, 1]

    def predict(self, candidates: Sequence[Features]) -> tuple[Array, Array]:
        """Return posterior mean and standard error of the quality of each untrained mechanism."""
        posterior = self.posterior
        mean, variance = posterior.predict(candidates)
        return posterior.transform.moments(mean, np.sqrt(variance))

    def draws(self, keys: Sequence[str], number: int, rng: np.random.Generator) -> Array:
        """Return joint posterior samples of the mechanisms' qualities, of shape (number, keys)."""
        posterior = self.posterior
        sample = posterior.draws({key: self.observed[key] for key in keys}, number, rng)
        return posterior.transform.inverse(sample)

    @property
    def posterior(self) -> Posterior:
        """The process after the first trainings, as many as ``num_fitted`` returns."""
        count = num_fitted(len(self._order))
        if self._posterior is None or self._posterior.num_trainings != count:
            if count not in self._fits:
                numbers = Counter(self._order[:count])
                if len(self._fits) == MOST_FITS:
                    del self._fits[min(self._fits)]
                self._fits[count] = Posterior(
                    {
                        key: replace(self.observed[key], scores=self.observed[key].scores[:number])
                        for key, number in numbers.items()
                    }
                )
            self._posterior, self._estimates = self._fits[count], {}
        return self._posterior

    def twin(self) -> Self:
        """Return an empty model that shares the fits. It must receive the same trainings."""
        return type(self)(self._fits)
