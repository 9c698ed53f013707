"""Whether what a search believes is true, by trainings of the table that no search sees.

Ten searches of 200 trainings each, or as many as there are seeds. Of the best that each reports:
how far its estimate, and its score, lie above its truth. Of all mechanisms: how often an interval
that should hold the truth in four cases of five does, and whether those that are members of the
front with a probability of so much are so often. And what those would report who train every
mechanism of the space, as often as a search may, and believe its mean score.

The truth is itself a mean of few trainings. So what is compared with it is what is predicted of
such a mean: an estimate's error and the noise of these trainings together.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from moocore import is_nondominated
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.peers.ours import archive_of, search_into
from benchmarks.peers.problem import Problem
from benchmarks.peers.recorded import Recorded, recorded
from nas.searching.archive import Archive
from nas.searching.results import TrialResult

BUDGET: Final = 200
ALGORITHM: Final = "surrogate"
WIDE: Final = 1.2816  # standard errors around the mean that hold four fifths of a normal
DRAWS: Final = 400
DECILES: Final = np.linspace(0, 1, 11)

Array = NDArray[np.float64]


def beliefs(options: argparse.Namespace) -> list[Figure]:
    """Optimism, coverage and calibration over so many searches."""
    measure = recorded(options.table)
    estimated, scored, held, chances, outcomes, known, shares = [], [], [], [], [], [], []
    for seed in range(options.seeds):
        own = measure(seed)
        told: list[TrialResult] = []
        problem = Problem(own, BUDGET)
        search_into(told, ALGORITHM, problem, seed)
        archive = archive_of(problem.bench, told)
        means, errors = archive.estimates()
        keys = [one.key for one in archive.known]
        truths = np.array([own.truth(key)[0] for key in keys])
        accuracies, deviations = -means[:, 0], np.hypot(errors[:, 0], _noise(archive, own))
        best = int(np.argmax(accuracies))
        estimated.append(accuracies[best] - truths[best])
        lucky = int(np.argmax([-np.mean([r[0] for r in _scores(told, key)]) for key in keys]))
        scored.append(-np.mean([r[0] for r in _scores(told, keys[lucky])]) - truths[lucky])
        held.append(np.mean(np.abs(truths - accuracies) <= WIDE * deviations))
        chances.append(_chances(archive, own, seed))
        outcomes.append(_non_dominated(np.column_stack([-truths, means[:, 1]])))
        known.append(keys)
        shares.append(_share_of_all(own))
    return [
        _figure("the best, estimate over truth", [100 * x for x in estimated], "points"),
        _figure("the luckiest, score over truth", [100 * x for x in scored], "points"),
        _figure("truths inside 80 % intervals", [100 * x for x in held], "%"),
        _figure("hypervolume, by mean scores of all", shares, "of the whole"),
        *_calibration(np.concatenate(chances), np.concatenate(outcomes), np.concatenate(known)),
    ]


def _share_of_all(own: Recorded) -> float:
    """The share of the whole space's hypervolume in the front of all mechanisms' mean scores."""
    mechanisms, seen = own.bench.mechanisms, range(int(own.most_trainings))
    rows = [(-np.mean([own.evaluate(key, r)[0] for r in seen]), macs)
            for key, (_, macs) in mechanisms.items()]  # fmt: skip
    truths = [own.truth(key) for key in mechanisms]
    reported = [truth for truth, is_in in zip(truths, _non_dominated(np.array(rows)), strict=True)
                if is_in]  # fmt: skip
    return own.bench.hypervolume(reported) / own.bench.hypervolume(truths)


def _scores(told: Sequence[TrialResult], key: str) -> list[tuple[float, ...]]:
    return [
        row for one in told if one.key == key and one.costs for row in one.trainings or (one.costs,)
    ]


def _noise(archive: Archive, own: Recorded) -> float:
    """The deviation of the truth, a mean of trainings, around what is estimated."""
    [belief] = archive.models.values()
    return belief.noise / own.num_unseen**0.5


def _chances(archive: Archive, own: Recorded, seed: int) -> Array:
    """How often each is a member, in draws of such truths."""
    rng, keys = np.random.default_rng(seed), [one.key for one in archive.known]
    costs = archive.estimates()[0][:, 1]
    [belief] = archive.models.values()
    drawn = belief.draws(keys, DRAWS, rng)
    drawn = drawn + _noise(archive, own) * rng.standard_normal(drawn.shape)
    found: Array = np.mean([_non_dominated(np.column_stack([row, costs])) for row in drawn], axis=0)
    return found


def _non_dominated(rows: Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = is_nondominated(rows, keep_weakly=True)
    return found


def _calibration(
    chances: Array, outcomes: NDArray[np.bool_], keys: NDArray[np.str_]
) -> list[Figure]:
    """Of each decile of the probability, the share that are members.

    Searches of one table meet the same mechanisms, whose luck they share; so the middle half is of
    draws of mechanisms.
    """
    rng, found = np.random.default_rng(0), []
    for low, high in pairwise(DECILES):
        inside = (chances >= low) & ((chances < high) | (high == 1))
        if not inside.any():
            continue
        said, num = chances[inside].mean(), int(inside.sum())
        _, own, each = np.unique(keys[inside], return_inverse=True, return_counts=True)
        members = np.bincount(own, weights=outcomes[inside])
        drawn = rng.integers(len(each), size=(DRAWS, len(each)))
        low_share, high_share = np.quantile(
            members[drawn].sum(axis=1) / each[drawn].sum(axis=1), (0.25, 0.75)
        )
        name = f"members, where P is {said:.2f} on average ({num}, of {len(each)} mechanisms)"
        share = float(outcomes[inside].mean())
        found.append(Figure(name, share, "of them", float(low_share), float(high_share)))
    return found


def _figure(name: str, values: Sequence[float], unit: str) -> Figure:
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)
    return Figure(name, mean, unit, mean - error, mean + error)
