"""Agreement between rankings of mechanisms by one short training and by long trainings.

``--table NAME`` names the table of the short task; the mechanisms that it shares with NAME-long are
ranked. The truth of a mechanism is the mean of its long trainings. Kendall's tau is a mean over the
seeds of the short trainings, because a search trains a mechanism once; its 95 % interval is by a
bootstrap over mechanisms.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from benchmarks.rows import Row, Spread
from benchmarks.tabular.table import Table, load_table
from nas.costs import size_costs

if TYPE_CHECKING:
    Values = NDArray[np.float64]

DRAWS: Final = 1000  # samples of the bootstrap


def ranking(options: argparse.Namespace) -> Iterator[Row]:
    """Yield Kendall's tau over all mechanisms and over the better half, by score."""
    short, long = load_table(options.table), load_table(f"{options.table}-long")
    metric = next(name for name in short.metrics if name != "log_loss")
    keys = {short.setting.resolve(genome).key: key for key, genome in long.mechanisms.items()}
    keys = {key: name for key, name in keys.items() if key in short.mechanisms}
    every = _scores(long, list(keys.values()), metric)
    truth = every.mean(axis=0)
    scores = {metric: (_scores(short, list(keys), metric), truth)}
    for name in ("log_loss", "train_loss"):
        if name == "train_loss" or name in short.metrics:
            scores[name] = -_scores(short, list(keys), name), truth
    for name in size_costs():
        costs = [long.cost(key, name) for key in keys.values()]
        scores[name] = np.array(costs), truth
    if len(every) > 1:
        others = (every.sum(axis=0) - every) / (len(every) - 1)
        scores["another long training"] = every, others
    for name, (rows, truths) in scores.items():
        pairs = list(zip(*np.broadcast_arrays(*map(np.atleast_2d, (rows, truths))), strict=True))
        better = [(s[t >= np.median(t)], t[t >= np.median(t)]) for s, t in pairs]
        yield {
            "score of one training": name,
            "mechanisms": len(keys),
            "tau": _tau(pairs),
            "tau of the better half": _tau(better),
        }


def _scores(table: Table, keys: Sequence[str], name: str) -> Values:
    """Return the scores of mechanisms, shape (seeds, mechanisms)."""
    rows = list(table.mechanisms)
    return table.scores(name)[[rows.index(key) for key in keys]].T


def _tau(pairs: Sequence[tuple[Values, Values]]) -> Spread:
    """Return the mean tau over seeds; a draw of the bootstrap is the same for all seeds."""
    rng, num = np.random.default_rng(0), len(pairs[0][0])
    draws = [np.arange(num), *(rng.integers(num, size=num) for _ in range(DRAWS))]
    value, *rest = (np.mean([kendalltau(s[i], t[i]).statistic for s, t in pairs]) for i in draws)
    low, high = np.nanpercentile(rest, (2.5, 97.5))
    return Spread(float(value), float(low), float(high))
