"""How well a short training ranks mechanisms as a long one does: Kendall's tau, and regret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from nas.common.errors import GenomeError, TableError
from nas.costs import size_costs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nas.genome import Genome
    from nas.searching.tabular.table import Table

    Values = NDArray[np.float64]

NUM_DRAWS: Final = 1000
LEAST: Final = 10  # mechanisms, so that a rank correlation says anything
TOP: Final = 5


@dataclass(frozen=True)
class Interval:
    """A statistic over mechanisms with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Agreement:
    """How a score ranks mechanisms, beside the truth.

    Attributes:
        score: its name: a metric, "train_loss", a cost, or "another long training".
        tau: Kendall's tau-b over all mechanisms.
        upper: the same over the half that is truly better.
        regret: how much worse than the truly best is the truly best of the score's five best, in
            the metric's unit.
    """

    score: str
    tau: Interval
    upper: Interval
    regret: float


def agreements(short: Table, long: Table, metric: str) -> tuple[int, list[Agreement]]:
    """How scores of single short trainings agree with the mean of the long ones.

    The statistics of a score are means over its seeds: what a search sees is one training. The last
    row is the ceiling: a single long training beside the mean of the others.

    Args:
        metric: of the long trainings, more being better.

    Returns:
        The number of mechanisms that both hold, and an agreement a score.

    Raises:
        TableError: the tables share too few mechanisms, or one lacks the metric.
    """
    for table in (short, long):
        if metric not in table.metrics:
            raise TableError(
                f"table {table.name} measured {', '.join(table.metrics)}; expected {metric}, too."
            )
    # A mechanism's key is resolved at a task's sizes, so it has another one in each table.
    own = {key: _own_key(short, genome) for key, genome in long.mechanisms.items()}
    keys = [key for key in own if _is_good(long, key) and _is_good(short, own[key])]
    if len(keys) < LEAST:
        raise TableError(
            f"tables {short.name} and {long.name} share {len(keys)} mechanisms whose trainings "
            f"ended well; expected at least {LEAST}."
        )
    every = list(long.scores(metric)[_rows(long, keys)].T)
    truth = np.mean(every, axis=0)
    found = []
    for name, sign in {metric: 1, "log_loss": -1, "train_loss": -1}.items():
        if name == "train_loss" or name in short.metrics:
            seeds = sign * short.scores(name)[_rows(short, [own[key] for key in keys])].T
            found.append(_agreement(name, list(seeds), [truth] * len(seeds)))
    costs = [long.costs(key, size_costs()) for key in keys]
    for name in size_costs():
        values = np.array([cost[name] for cost in costs])
        found.append(_agreement(name, [values], [truth]))
    others = [np.mean(every[:i] + every[i + 1 :], axis=0) for i in range(len(every))]
    if len(every) > 1:
        found.append(_agreement("another long training", every, others))
    return len(keys), found


def _own_key(table: Table, genome: Genome) -> str:
    """What a table calls a mechanism, or nothing that it holds."""
    try:
        return table.key_of(genome)
    except (GenomeError, TableError):
        return ""


def _is_good(table: Table, key: str) -> bool:
    own = table.trainings.get(key, ())[: table.repeats]
    return bool(own) and all(one.is_ok for one in own)


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
    """Tau's mean over pairs, with mechanisms drawn anew, the same for pairs of as many."""
    value, *draws = np.mean([_taus(*pair) for pair in pairs], axis=0)
    low, high = np.nanpercentile(draws, (2.5, 97.5))
    return Interval(float(value), float(low), float(high))


def _taus(score: Values, truth: Values) -> Values:
    """Kendall's tau-b over all, then over each draw; NaN where all are tied."""
    rng, num = np.random.default_rng(0), len(score)
    drawn = (rng.integers(num, size=num) for _ in range(NUM_DRAWS))
    times = np.array([np.ones(num), *(np.bincount(one, minlength=num) for one in drawn)])
    signs, others = (np.sign(values[:, None] - values) for values in (score, truth))
    agree, untied, both = (
        np.einsum("dm,dm->d", times @ pairs, times)
        for pairs in (signs * others, signs**2, others**2)
    )
    with np.errstate(invalid="ignore"):
        taus: Values = agree / np.sqrt(untied * both)
    return taus
