"""A plain Gaussian process over categorical choices, with scikit-learn.

The process predicts quality from the one-hot encoded choices of a mechanism. Its kernel is a
squared exponential plus white noise, fitted anew before each batch. Costs are known exactly before
a training. The first twelve mechanisms are random; each later batch of twelve holds the mechanisms
with the greatest expected hypervolume improvement over the whole table. Within a batch, mechanisms
are chosen one after the other, and each is assumed to have its posterior mean ("kriging believer",
Ginsbourger et al. 2010, "Kriging is well-suited to parallelize optimization"). Each mechanism is
trained once. The reported front holds the trained mechanisms that are non-dominated by posterior
means.

``ehvi_of_pools`` is the same algorithm in a space that is too large for a table: a batch is
selected from 600 offspring of the best trained mechanisms, drawn with the variation operators and
the parent selection of our NSGA-II.

Of squared exponential, Matérn 5/2 and Matérn 1/2 kernels, each with and without MACs as a further
feature, this one had the highest hypervolume after 60 trainings of attention-bench-quick.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import OneHotEncoder

from benchmarks.peers.ours import context_of
from benchmarks.peers.problem import GENERATION, Bench, Problem
from nas.common.pareto import non_dominated
from nas.searching.algorithm import DRAW, SearchContext, TrialResult
from nas.searching.nsga2 import Nsga2

if TYPE_CHECKING:
    Array = NDArray[np.float64]

POOL = 600  # offspring from which a batch is selected


@dataclass(frozen=True)
class Candidates:
    """All mechanisms of a table.

    Attributes:
        keys: digest of each mechanism.
        x: one-hot encoded choices, shape (mechanisms, choices).
        costs: costs, scaled so that the largest cost inside the limits is 1, shape (mechanisms,).
        worst: quality from which hypervolumes are measured.
    """

    keys: list[str]
    x: Array
    costs: Array
    worst: float

    @classmethod
    def of(cls, bench: Bench) -> Candidates:
        """Return all mechanisms of a bench, encoded."""
        keys = list(bench.mechanisms)
        values = [list(bench.encodings[key].values()) for key in keys]
        costs = np.array([bench.mechanisms[key][1] for key in keys])
        worst, most = bench.corner
        x = OneHotEncoder(sparse_output=False).fit_transform(values)
        return cls(keys, x, costs / most, worst)


def ehvi_of_pools(problem: Problem, seed: int) -> None:
    """Search in batches of twelve by expected hypervolume improvement over pools of offspring."""
    ehvi(problem, seed, context_of(problem, seed))


def ehvi(problem: Problem, seed: int, context: SearchContext | None = None) -> None:
    """Search in batches of twelve by expected hypervolume improvement, until none is left.

    Args:
        context: a source of offspring from which batches are selected; None for all mechanisms.
    """
    candidates = Candidates.of(problem.bench)
    first = problem.initial or problem.bench.initial(seed)
    trained: list[int] = []
    scores: list[float] = []

    def train(rows: list[int]) -> None:
        for row in rows:
            scores.append(problem.evaluate(candidates.keys[row])[0])
            trained.append(row)

    def report(after: int) -> list[str]:
        rows = trained[:after]
        means, _ = posterior(candidates.x, rows, scores[:after])
        costs = [(means[row], candidates.costs[row]) for row in rows]
        return [
            candidates.keys[rows[i]] for i in sorted(non_dominated(costs), key=lambda i: costs[i])
        ]

    problem.report = report
    train([candidates.keys.index(key) for key in first])
    while len(trained) < len(candidates.keys):
        means, errors = posterior(candidates.x, trained, scores)
        rows = list(range(len(means)))
        if context is not None:
            rows = _offspring(problem.bench, candidates, trained, means, context)
        train(next_batch(candidates, trained, means, errors, rows))


def _offspring(
    bench: Bench, candidates: Candidates, trained: list[int], means: Array, context: SearchContext
) -> list[int]:
    """Return the rows of 600 offspring of the best trained mechanisms, without duplicates.

    Args:
        means: posterior mean of each mechanism's quality, shape (mechanisms,).
    """
    evolution, rows = Nsga2(context), {key: row for row, key in enumerate(candidates.keys)}
    known = []
    for row in dict.fromkeys(trained):
        key = candidates.keys[row]
        genome, cost = bench.mechanisms[key]
        digest = bench.filter.inspect(genome).digest
        known.append(TrialResult(len(known), genome, digest, key, (float(means[row]), cost)))
    evolution.tell(known)
    rng, pool, missed = context.generator(len(trained), DRAW), set[int](), 0
    for _ in range(POOL):
        key = bench.filter.inspect(evolution.propose(rng, missed).genome).key
        is_new = key in rows and rows[key] not in pool and rows[key] not in trained
        missed = 0 if is_new else missed + 1
        if is_new:
            pool.add(rows[key])
    return sorted(pool)


def posterior(x: Array, rows: list[int], scores: list[float]) -> tuple[Array, Array]:
    """Return posterior means and standard errors of all mechanisms' qualities.

    Args:
        x: encoded choices of all mechanisms, shape (mechanisms, choices).
        rows: trained mechanisms, as rows of ``x``.
        scores: quality of each trained mechanism.
    """
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a hyperparameter at its bound
        process.fit(x[rows], scores)
    means, deviations = process.predict(x, return_std=True)
    noise = process.kernel_.k2.noise_level * np.var(scores)  # predictions include the noise
    return means, np.sqrt(np.maximum(deviations**2 - noise, 0.0))


def next_batch(
    candidates: Candidates, trained: list[int], means: Array, errors: Array, pool: list[int]
) -> list[int]:
    """Return the rows of the twelve untrained mechanisms to train next.

    Args:
        trained: rows of trained mechanisms.
        pool: rows of mechanisms from which the batch is selected.
        means: posterior mean of each mechanism's quality, shape (mechanisms,).
        errors: posterior standard error of each mechanism's quality, shape (mechanisms,).
    """
    known, left = list(trained), set(pool) - set(trained)
    while left and len(known) < len(trained) + GENERATION:
        gains, rows = expected_improvement(candidates, known, means, errors), sorted(left)
        known.append(rows[int(np.argmax(gains[rows]))])
        left.remove(known[-1])
    return known[len(trained) :]


def expected_improvement(
    candidates: Candidates, known: list[int], means: Array, errors: Array
) -> Array:
    """Return each mechanism's expected hypervolume improvement over the known ones, in closed form.

    A mechanism of cost c improves the front at each cost from c to 1. There the front has a
    constant best quality between the costs of two known mechanisms, so the improvement is a sum
    of one-dimensional expected improvements, each times the width of its interval of costs.
    """
    known = sorted(
        (row for row in known if candidates.costs[row] < 1), key=lambda row: candidates.costs[row]
    )
    edges = np.array([0.0, *candidates.costs[known], 1.0])
    levels = np.minimum.accumulate([candidates.worst, *means[known]])
    widths = np.maximum(edges[1:] - np.maximum(edges[:-1], candidates.costs[:, None]), 0.0)
    spread = np.maximum(errors, 1e-12)[:, None]
    z = (levels - means[:, None]) / spread
    return (widths * spread * (z * norm.cdf(z) + norm.pdf(z))).sum(axis=1)
