"""Measure bias, coverage and calibration of a search's estimates on a table of trainings.

The benchmark runs one search of 200 trainings per seed. It reports

- the bias of the best mechanism: by how much estimate and score are better than the ground truth;
- the coverage of 80 % intervals over all mechanisms;
- the calibration of the probability of being on the front, by deciles;
- the hypervolume of an exhaustive search, which trains all mechanisms and compares mean scores.

The ground truth is the mean of few trainings that no search sees. So predictions include its noise:
their variance is the variance of the estimate plus the variance of this mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.ours import archive_of, context_of, search_into
from benchmarks.peers.problem import Problem
from benchmarks.peers.recorded import Recorded, recorded
from benchmarks.rows import Mean, Row, Spread
from nas.common.objectives import limits_of
from nas.common.pareto import non_dominated
from nas.searching.algorithm import TrialResult
from nas.searching.archive import Archive, front_members

BUDGET: Final = 200
ALGORITHM: Final = "surrogate"
Z_80: Final = 1.2816  # half-width of a normal's 80 % interval, in standard deviations
DRAWS: Final = 400
DECILES: Final = np.linspace(0, 1, 11)

Array = NDArray[np.float64]


def beliefs(options: argparse.Namespace) -> Iterator[Row]:
    """Yield bias, coverage and calibration over ``options.seeds`` searches."""
    measure = recorded(options.table)
    estimate_biases, score_biases, coverages, shares = [], [], [], []
    probabilities, outcomes, all_keys = [], [], []
    for seed in range(options.seeds):
        recording = measure(seed)
        results: list[TrialResult] = []
        problem = Problem(recording, BUDGET)
        search_into(results, ALGORITHM, context_of(problem, seed), problem)
        archive = archive_of(problem.bench, results)
        means, errors = archive.estimates()
        keys = [result.key for result in archive.known]
        truths = np.array([recording.truth(key)[0] for key in keys])
        estimates, deviations = means[:, 0], np.hypot(errors[:, 0], _noise(archive, recording))
        best = int(np.argmin(estimates))
        estimate_biases.append(truths[best] - estimates[best])
        scores = [np.mean([row[0] for row in _scores(results, key)]) for key in keys]
        lowest = int(np.argmin(scores))
        score_biases.append(truths[lowest] - scores[lowest])
        coverages.append(np.mean(np.abs(truths - estimates) <= Z_80 * deviations))
        probabilities.append(_front_probabilities(archive, recording, seed))
        outcomes.append(_members(np.column_stack([truths, means[:, 1]]), archive))
        all_keys.append(keys)
        shares.append(_exhaustive_share(recording))
    scale = 100 if measure(0).bench.objectives[0].unit == "fraction" else 1  # points, or bits
    yield {
        "searches": options.seeds,
        "best estimate better than truth": Mean.of([scale * x for x in estimate_biases]),
        "best score better than truth": Mean.of([scale * x for x in score_biases]),
        "truths inside 80 % intervals, %": Mean.of([100 * x for x in coverages]),
        "exhaustive search": Mean.of(shares),
    }
    yield from _calibration(*map(np.concatenate, (probabilities, outcomes, all_keys)))


def _exhaustive_share(recording: Recorded) -> float:
    """Return the hypervolume of an exhaustive search, as a share of the true front's."""
    mechanisms, repeats = recording.bench.mechanisms, range(int(recording.most_trainings))
    rows = [(float(np.mean([recording.evaluate(key, r)[0] for r in repeats])), cost)
            for key, (_, cost) in mechanisms.items()]  # fmt: skip
    truths = [recording.truth(key) for key in mechanisms]
    reported = [truths[i] for i in non_dominated(rows)]
    return recording.bench.hypervolume(reported) / recording.bench.hypervolume(truths)


def _scores(results: Sequence[TrialResult], key: str) -> list[tuple[float, ...]]:
    return [
        row
        for result in results
        if result.key == key and result.costs
        for row in result.trainings or (result.costs,)
    ]


def _noise(archive: Archive, recording: Recorded) -> float:
    """Return the standard deviation of the ground truth around the true quality."""
    [model] = archive.models.values()
    return model.noise / recording.num_unseen**0.5


def _front_probabilities(archive: Archive, recording: Recorded, seed: int) -> Array:
    """Return the share of noisy posterior samples in which each mechanism is non-dominated."""
    rng, keys = np.random.default_rng(seed), [result.key for result in archive.known]
    costs = archive.estimates()[0][:, 1]
    [model] = archive.models.values()
    samples = model.draws(keys, DRAWS, rng)
    samples = samples + _noise(archive, recording) * rng.standard_normal(samples.shape)
    members = [_members(np.column_stack([row, costs]), archive) for row in samples]
    probabilities: Array = np.mean(members, axis=0)
    return probabilities


def _members(rows: Array, archive: Archive) -> NDArray[np.bool_]:
    return front_members(rows, np.array(limits_of(archive.objectives)))


def _calibration(
    probabilities: Array, outcomes: NDArray[np.bool_], keys: NDArray[np.str_]
) -> Iterator[Row]:
    """Yield the share of non-dominated mechanisms in each decile of the probability.

    Mechanisms recur in the searches of one table with the same ground truth. So the spread is the
    interquartile range of a bootstrap over mechanisms.
    """
    rng = np.random.default_rng(0)
    for low, high in pairwise(DECILES):
        inside = (probabilities >= low) & ((probabilities < high) | (high == 1))
        if not inside.any():
            continue
        _, index, sizes = np.unique(keys[inside], return_inverse=True, return_counts=True)
        members = np.bincount(index, weights=outcomes[inside])
        draws = rng.integers(len(sizes), size=(DRAWS, len(sizes)))
        shares = members[draws].sum(axis=1) / sizes[draws].sum(axis=1)
        yield {
            "mean p(front)": float(probabilities[inside].mean()),
            "predictions": int(inside.sum()),
            "mechanisms": len(sizes),
            "share of members": Spread(
                float(outcomes[inside].mean()), *np.quantile(shares, (0.25, 0.75)).tolist()
            ),
        }
