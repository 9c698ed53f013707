"""Agreement between rankings of mechanisms by short and by long trainings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from nas.common.errors import GenomeError, TableError
from nas.costs import size_costs
from nas.genome import Genome
from nas.searching.tabular.table import Table

if TYPE_CHECKING:
    Values = NDArray[np.float64]

NUM_DRAWS: Final = 1000  # samples of the bootstrap
NUM_LEAST: Final = 10  # least number of mechanisms for a rank correlation
TOP: Final = 5  # number of mechanisms ranked first that the regret is computed from


@dataclass(frozen=True)
class Interval:
    """A statistic over mechanisms, with the lower and upper end of its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Agreement:
    """How well the ranking of mechanisms by a score agrees with the ranking by true scores.

    ``agreements`` defines the true score.

    Attributes:
        score: name of the score: a metric, "train_loss", a cost, or "another long training".
        tau: Kendall's tau-b over all mechanisms.
        upper: Kendall's tau-b over the mechanisms whose true score is at least the median.
        regret: the greatest true score of all mechanisms, minus the greatest true score of the
            ``TOP`` mechanisms that the score ranks first. It is in the metric's unit.
    """

    score: str
    tau: Interval
    upper: Interval
    regret: float


def agreements(short: Table, long: Table, metric: str) -> tuple[int, list[Agreement]]:
    """Return how well scores of single short trainings agree with the true ranking.

    The true score of a mechanism is the mean of its long trainings. Each statistic is computed for
    each seed of the short trainings and averaged, because a search trains a mechanism with one
    seed. The last agreement is an upper bound: it compares a single long training with the mean of
    all other long trainings.

    Args:
        short: the table of short trainings.
        long: the table of long trainings.
        metric: a metric of both tables for which more is better.

    Returns:
        The number of mechanisms that both tables contain, and an agreement for each score.

    Raises:
        TableError: the tables share too few mechanisms, or a table lacks the metric.
    """
    for table in (short, long):
        if metric not in table.metrics:
            raise TableError(
                f"table {table.name} measured {', '.join(table.metrics)}; expected {metric}, too."
            )
    # A mechanism's key is resolved at a task's sizes, so it differs between tables.
    short_keys = {key: _key_in(short, genome) for key, genome in long.mechanisms.items()}
    keys = [key for key in short_keys if _is_good(long, key) and _is_good(short, short_keys[key])]
    if len(keys) < NUM_LEAST:
        raise TableError(
            f"tables {short.name} and {long.name} share {len(keys)} mechanisms whose trainings "
            f"ended well; expected at least {NUM_LEAST}."
        )
    every = list(long.scores(metric)[_rows(long, keys)].T)
    truth = np.mean(every, axis=0)
    rankings = []
    for name, sign in {metric: 1, "log_loss": -1, "train_loss": -1}.items():
        if name == "train_loss" or name in short.metrics:
            seeds = sign * short.scores(name)[_rows(short, [short_keys[key] for key in keys])].T
            rankings.append(_agreement(name, list(seeds), [truth] * len(seeds)))
    costs = [long.costs(key, size_costs()) for key in keys]
    for name in size_costs():
        values = np.array([cost[name] for cost in costs])
        rankings.append(_agreement(name, [values], [truth]))
    others = [np.mean(every[:i] + every[i + 1 :], axis=0) for i in range(len(every))]
    if len(every) > 1:
        rankings.append(_agreement("another long training", every, others))
    return len(keys), rankings


def _key_in(table: Table, genome: Genome) -> str:
    """Return the key of a mechanism in a table; empty if the table lacks the mechanism."""
    try:
        return table.key_of(genome)
    except (GenomeError, TableError):
        return ""


def _is_good(table: Table, key: str) -> bool:
    trainings = table.trainings.get(key, ())[: table.repeats]
    return bool(trainings) and all(training.is_ok for training in trainings)


def _rows(table: Table, keys: list[str]) -> list[int]:
    where = {key: row for row, key in enumerate(table.mechanisms)}
    return [where[key] for key in keys]


def _agreement(name: str, scores: list[Values], truths: list[Values]) -> Agreement:
    upper = [truth >= np.median(truth) for truth in truths]
    pairs = list(zip(scores, truths, strict=True))
    halves = [(s[up], t[up]) for (s, t), up in zip(pairs, upper, strict=True)]
    regret = np.mean([t.max() - t[np.argsort(-s, kind="stable")[:TOP]].max() for s, t in pairs])
    return Agreement(name, _interval(pairs), _interval(halves), float(regret))


def _interval(pairs: list[tuple[Values, Values]]) -> Interval:
    """Return the mean of Kendall's tau over seeds.

    Args:
        pairs: scores and true scores of the mechanisms for each seed. The bootstrap draws the same
            mechanisms for each seed.
    """
    value, *draws = np.mean([_taus(*pair) for pair in pairs], axis=0)
    low, high = np.nanpercentile(draws, (2.5, 97.5))
    return Interval(float(value), float(low), float(high))


def _taus(score: Values, truth: Values) -> Values:
    """Return tau-b of all mechanisms, then of each bootstrap sample; NaN if all are tied."""
    rng, num = np.random.default_rng(0), len(score)
    drawn = (rng.integers(num, size=num) for _ in range(NUM_DRAWS))
    times = np.array([np.ones(num), *(np.bincount(rows, minlength=num) for rows in drawn)])
    signs, others = (np.sign(values[:, None] - values) for values in (score, truth))
    agree, untied, both = (
        np.einsum("dm,dm->d", times @ pairs, times)
        for pairs in (signs * others, signs**2, others**2)
    )
    with np.errstate(invalid="ignore"):
        taus: Values = agree / np.sqrt(untied * both)
    return taus
