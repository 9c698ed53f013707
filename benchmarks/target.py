"""Replay searches with a target task on recorded trainings of a short and of a longer task.

``--table NAME`` names the table of the short task; the mechanisms that it shares with NAME-long
take part. Each order draws which long training of each mechanism a strategy may use; the mean of
the others is the truth. A strategy picks the mechanism with the best score under the longer task.
Its regret is the truth of its pick minus the best truth. Strategies:

- short: train all mechanisms under the short task, and pick the best score
- long: train all mechanisms under the longer task, and pick the best score
- greedy N: train all under the short task; then N under the longer task, the first of them spread
  over cost, the others the most likely members of its front; pick the best estimate of these
- proposer N %: the search's own proposer, restricted to the mechanisms of the tables, until it has
  spent that share of the core-seconds of one long training of each mechanism
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import numpy as np
from moocore import is_nondominated
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.peers.problem import Bench, bench
from benchmarks.tabular.table import Table, load_table
from nas.common.differences import mean_and_error
from nas.common.objectives import as_costs
from nas.evaluation.trial import Evaluation
from nas.genome import Genome
from nas.searching.algorithm import SearchContext
from nas.searching.filtering import CandidateFilter
from nas.searching.gains import expected_gain
from nas.searching.proposing import REPEAT_EVERY, Proposer
from nas.searching.results import Attempt, TrialResult
from nas.searching.setup import work_of
from nas.searching.target_archive import TargetArchive
from nas.space.vary import Variation
from nas.store.records import TARGET

if TYPE_CHECKING:
    Array = NDArray[np.float64]

# The worst value inside the region of a longer task, four fifths of the way from the plain mean
# (3.136 bits) to standard attention (2.449).
LIMITS: Final = {"bytes-bench": 2.586}
SCALES: Final = {"fraction": (100, "points"), "bit": (1000, "thousandths of a bit")}
NUMBERS: Final = (12, 16, 20, 24)  # long trainings
SHARES: Final = (35, 50, 65)  # per cent of the core-seconds of all long trainings
COVERED: Final = 20  # long trainings after which coverage is measured
Z_80: Final = 1.2816  # half-width of a normal's 80 % interval, in standard deviations
POPULATION: Final = 12


@dataclass(frozen=True)
class Tables:
    """The shared mechanisms of both tables, by their key under the short task.

    Attributes:
        bench: space and objectives; costs are at the sizes of the longer task.
        settings: the tables of the short and of the longer task.
        genomes: mechanisms in normal form.
        short, long: trainings of each mechanism.
        ratio: work of a long training relative to a short one.
        seconds: core-seconds of one long training of each mechanism.
    """

    bench: Bench
    settings: tuple[Table, Table]
    genomes: dict[str, Genome]
    short: dict[str, Sequence[Evaluation]]
    long: dict[str, Sequence[Evaluation]]
    ratio: float
    seconds: float

    def filter(self) -> CandidateFilter:
        """Return a filter without trained mechanisms."""
        short, long = self.settings
        return CandidateFilter(self.bench.policy, short.setting, [self.bench.cost], long.setting)


@cache
def _tables(name: str) -> Tables:
    short, long = load_table(name), load_table(f"{name}-long")
    found = {short.setting.resolve(genome).key: key for key, genome in long.mechanisms.items()}
    keys = {key: name for key, name in found.items() if key in short.mechanisms}
    problem = bench(long.name)
    if name in LIMITS:
        quality, cost = problem.objectives
        limited = replace(quality, limit=LIMITS[name]), cost
        problem = replace(problem, objectives=limited)
    return Tables(
        bench=problem,
        settings=(short, long),
        genomes={key: short.mechanisms[key] for key in keys},
        short={key: short.trainings[key] for key in keys},
        long={key: long.trainings[name] for key, name in keys.items()},
        ratio=_work(long) / _work(short),
        seconds=sum(long.trainings[key][0].core_seconds for key in keys.values()),
    )


def _work(table: Table) -> float:
    trainings = next(iter(table.trainings.values()))
    return work_of(table.setting, trainings[0].budget)


class Replay:
    """The trainings of one order, and those that a strategy has used.

    Attributes:
        results: results of all trainings so far.
        seconds: core-seconds of these trainings.
    """

    def __init__(self, name: str, order: int) -> None:
        self.tables, self.order = _tables(name), order
        self._quality = self.tables.bench.objectives[0]
        self.scale = SCALES[self._quality.unit][0]
        short, long = self.repeats = tuple(table.repeats for table in self.tables.settings)
        rng = np.random.default_rng(order)
        self._rows = {
            key: (rng.permutation(short), rng.permutation(long)) for key in self.tables.genomes
        }
        self._filter = self.tables.filter()
        self._num: dict[tuple[str, bool], int] = {}
        self.results: list[TrialResult] = []
        self.seconds = 0.0
        self.archive = self.new_archive()

    def new_archive(self) -> TargetArchive:
        """Return an empty archive."""
        return TargetArchive(
            self.tables.bench.objectives,
            most_trainings=self.repeats[0],
            work_ratio=self.tables.ratio,
            most_target=1,
        )

    def truths(self) -> dict[str, float]:
        """Return the mean score of the long trainings that no strategy uses; lower is better."""
        name, trainings = self._quality.name, self.tables.long
        return {
            key: self._quality.as_cost(np.mean([trainings[key][i].metrics[name] for i in rows[1:]]))
            for key, (_, rows) in self._rows.items()
        }

    def train(self, key: str, *, is_target: bool) -> TrialResult:
        """Return the result of the next training of a mechanism under one of the tasks."""
        table = self.tables.long if is_target else self.tables.short
        number = self._num.get((key, is_target), 0)
        self._num[key, is_target] = number + 1
        evaluation = table[key][self._rows[key][is_target][number]]
        self.seconds += evaluation.core_seconds
        info = self._filter.inspect(self.tables.genomes[key])
        values = {**info.costs, **evaluation.metrics}
        costs = as_costs(self.tables.bench.objectives, values)
        is_repeat = is_target or number > 0
        result = TrialResult(
            len(self.results), info.genome, info.digest, key, costs, (costs,), info.costs,
            is_repeat=is_repeat, is_target=is_target,
        )  # fmt: skip
        self.results.append(result)
        return result

    def tell(self, key: str, *, is_target: bool) -> None:
        """Train a mechanism, and add the result to the archive."""
        self.archive.tell([self.train(key, is_target=is_target)])

    def score(self, archive: TargetArchive) -> dict[str, float]:
        """Return the regret of the pick, and the missing share of the true hypervolume.

        The front consists of the mechanisms with a long training that are non-dominated by
        estimates.
        """
        rows = [i for i, r in enumerate(archive.known) if self._num.get((r.key, True))]
        estimates = archive.estimates()[0][rows]
        keys = [archive.known[i].key for i in rows]
        members = is_nondominated(estimates, keep_weakly=True)
        front = [key for key, is_member in zip(keys, members, strict=True) if is_member]
        missing = 100 * (1 - self._volume(front) / self._volume(self.tables.genomes))
        return {"": self.regret(keys[int(np.argmin(estimates[:, 0]))]), " missing": missing}

    def _volume(self, keys: Iterable[str]) -> float:
        truths, inspect = self.truths(), self._filter.inspect
        costs = {key: inspect(self.tables.genomes[key]).costs for key in keys}
        name = self.tables.bench.cost
        return self.tables.bench.hypervolume([(truths[key], costs[key][name]) for key in costs])

    def regret(self, key: str) -> float:
        """Return the regret of a mechanism in the unit of ``SCALES``."""
        truths = self.truths()
        return self.scale * (truths[key] - min(truths.values()))


class TableAlgorithm:
    """Proposes the new mechanism of the tables with the greatest expected gain.

    If there is none, it proposes a target training of a likely member of the front.
    """

    def __init__(self, replay: Replay, context: SearchContext) -> None:
        self._replay, self._context = replay, context

    def tell(self, results: Sequence[TrialResult]) -> None:
        """Ignore the results; the archive has them."""

    def propose(self, rng: np.random.Generator, num_failed: int) -> Attempt:
        """Return a new mechanism, or a known one if all mechanisms are trained."""
        context, genomes = self._context, list(self._replay.tables.genomes.values())
        infos = [context.filter.inspect(genome) for genome in genomes]
        new = [info for info in infos if info.is_new]
        archive = context.archive
        if not new:
            pending = {proposal.key for proposal in archive.pending}
            return Attempt(_likely(self._replay.archive, pending).genome, TARGET)
        if not archive.is_informed:
            return Attempt(new[rng.integers(len(new))].genome, "sample")
        means, errors = archive.predict([(info.genome, info.costs) for info in new])
        ideal = np.array([o.as_cost(o.ideal) for o in context.objectives])
        span = np.array([o.as_cost(o.corner) for o in context.objectives]) - ideal
        front = (archive.estimates()[0] - ideal) / span
        rows = zip((means - ideal) / span, errors / span, strict=True)
        gains = [expected_gain(front, *row) for row in rows]
        return Attempt(new[int(np.argmax(gains))].genome, "sample")


def _short(name: str, order: int) -> tuple[float, float]:
    replay = Replay(name, order)
    scores = {key: replay.train(key, is_target=False).costs for key in replay.tables.genomes}
    return replay.regret(min(scores, key=lambda key: scores[key] or ())), replay.seconds


def _long(name: str, order: int) -> tuple[float, float]:
    replay = Replay(name, order)
    scores = {key: replay.train(key, is_target=True).costs for key in replay.tables.genomes}
    return replay.regret(min(scores, key=lambda key: scores[key] or ())), replay.seconds


def _greedy(name: str, order: int) -> Iterator[tuple[str, float]]:
    replay = Replay(name, order)
    archive = replay.archive
    genomes = list(replay.tables.genomes)
    # A search trains one in ten mechanisms again.
    keys = [*genomes, *(genomes[::REPEAT_EVERY] if replay.repeats[0] > 1 else ())]
    archive.tell([replay.train(key, is_target=False) for key in keys])
    for number in range(1, max(NUMBERS) + 1):
        chosen = archive.next_spread()
        if chosen is None:
            chosen = _likely(archive, ())
        replay.tell(chosen.key, is_target=True)
        if number in NUMBERS:
            for of, value in replay.score(archive).items():
                yield f"greedy {number}{of}", value
            yield f"greedy {number} core-seconds", replay.seconds
        if number == COVERED:
            yield "coverage", _coverage(replay)


def _likely(archive: TargetArchive, pending: Collection[str | None]) -> TrialResult:
    """Return the most likely member of the front that has no long training."""
    known, p = archive.known, archive.p_non_dominated()
    left = [
        i
        for i, result in enumerate(known)
        if archive.may_train(result.key, True) and result.key not in pending
    ]
    return known[max(left, key=lambda i: p[i])]


def _coverage(replay: Replay) -> float:
    """Return the share of truths inside 80 % intervals, in per cent."""
    archive, truths = replay.archive, replay.truths()
    means, errors = archive.estimates()
    spread = np.hypot(errors[:, 0], archive.models[0].noise / (replay.repeats[1] - 1) ** 0.5)
    truth = np.array([truths[result.key] for result in archive.known])
    return float(100 * np.mean(np.abs(truth - means[:, 0]) <= Z_80 * spread))


def _proposer(name: str, order: int) -> Iterator[tuple[str, float]]:
    replay = Replay(name, order)
    tables, genomes = replay.tables, list(replay.tables.genomes.values())
    first = np.random.default_rng(order).permutation(len(genomes))[:POPULATION]
    context = SearchContext(
        operators=Variation(
            tables.bench.space, tables.bench.policy, is_causal=tables.bench.setting.is_causal
        ),
        mechanisms=tuple(("", genomes[i]) for i in first),
        population=POPULATION,
        objectives=tables.bench.objectives,
        seed=order,
        filter=tables.filter(),
        archive=replay.archive,
    )
    proposer = Proposer(TableAlgorithm(replay, context), context)
    left = list(SHARES)
    while left:
        proposal = proposer.propose(len(replay.results), replay.results)[-1]
        replay.train(str(proposal.key), is_target=proposal.is_target)
        if replay.seconds >= left[0] / 100 * tables.seconds:
            archive = replay.new_archive()
            archive.tell(replay.results)
            share = left.pop(0)
            for of, value in replay.score(archive).items():
                yield f"proposer {share} %{of}", value
            yield f"proposer {share} % core-seconds", replay.seconds


def _order(table: str, order: int) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, strategy in {"short": _short, "long": _long}.items():
        values[name], values[f"{name} core-seconds"] = strategy(table, order)
    return values | dict(_greedy(table, order)) | dict(_proposer(table, order))


def target(options: argparse.Namespace) -> list[Figure]:
    """Return regret and core-seconds of each strategy, over ``options.seeds`` orders."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        orders = list(pool.map(partial(_order, options.table), range(options.seeds)))
    regret = SCALES[_tables(options.table).bench.objectives[0].unit][1]
    figures = []
    for name in orders[0]:
        mean, error = mean_and_error([values[name] for values in orders])
        unit = (
            "%"
            if name.endswith(("coverage", "missing"))
            else "s"
            if name.endswith("core-seconds")
            else regret
        )
        figures.append(Figure(name, mean, unit, mean - (error or 0.0), mean + (error or 0.0)))
    return figures
