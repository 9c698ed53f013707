"""The problem that an optimiser solves: categorical choices, and a budget of trainings.

The two objectives are the metric of a space's task and the cost that the space names after it. All
scores are costs, so that lower is better: the values of a metric that is maximised are negated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.peers.encodings import ENCODINGS, Assignment, Choices, Encoding
from benchmarks.tabular.table import Table, load_table
from nas.common.objectives import COST_REFERENCE, Objective, of_metric
from nas.common.pareto import hypervolume, non_dominated, normalise
from nas.costs import COSTS
from nas.genome import Genome
from nas.genome.mechanisms import mechanism
from nas.searching.filtering import CandidateFilter, CandidateInfo
from nas.space import SearchSpace
from nas.space.rules import Policy
from nas.space.space import seeds

if TYPE_CHECKING:
    from benchmarks.peers.recorded import Recorded

Score = tuple[float, float]  # quality and cost; lower is better, so accuracy is negated

DEFAULT: Final = "attention-bench"
GENERATION: Final = 12  # mechanisms that our algorithms and most peers propose at a time
MAX_REQUESTS: Final = 100  # requests per training of the budget, after which a search is stopped


class SpentError(Exception):
    """Raised if the budget is spent, or if the optimiser requests no legal mechanism."""


class TableFilter(CandidateFilter):
    """A filter that takes predicted times from a table."""

    def __init__(self, policy: Policy, table: Table) -> None:
        super().__init__(policy, table.setting, [])
        self._times = table.times

    def inspect(self, genome: Genome) -> CandidateInfo:
        info = super().inspect(genome)
        if not (self._times and info.key):
            return info
        return replace(info, costs={**info.costs, "time_ms": self._times[info.key]})


@dataclass(frozen=True)
class Bench:
    """The space of a table, with its objectives and categorical choices.

    Attributes:
        objectives: the metric of the task and a cost.
    """

    table: Table
    space: SearchSpace
    policy: Policy
    objectives: tuple[Objective, Objective]
    encoding: Encoding

    @property
    def cost(self) -> str:
        """The name of the cost."""
        return self.objectives[1].name

    @property
    def corner(self) -> Score:
        """The point from which hypervolumes are measured."""
        quality, cost = self.objectives
        return quality.as_cost(quality.corner), cost.as_cost(cost.corner)

    @cached_property
    def filter(self) -> TableFilter:
        """A filter without trained mechanisms, which resolves genomes and caches the results."""
        return TableFilter(self.policy, self.table)

    @cached_property
    def mechanisms(self) -> dict[str, tuple[Genome, float]]:
        """Genome in normal form and cost of each mechanism in the encoding, by digest."""
        genomes = map(self.encoding.genome, self.encodings.values())
        infos = map(self.filter.inspect, genomes)
        return {info.key: (info.genome, info.costs[self.cost]) for info in infos}

    @cached_property
    def encodings(self) -> dict[str, Assignment]:
        """The first assignment that means each mechanism, by the mechanism's digest."""
        encodings: dict[str, Assignment] = {}
        for assignment in self.encoding.assignments(self.encoding.choices):
            if key := self.decode(assignment):
                encodings.setdefault(key, assignment)
        return encodings

    def initial(self, seed: int, *, with_named: bool = False) -> tuple[str, ...]:
        """Return the digests of a first generation that all algorithms can start from.

        Args:
            seed: seed of the random choice, uniform over all mechanisms.
            with_named: whether the named mechanisms of the space come first.
        """
        named = seeds(self.space, self.policy, self.table.setting.is_causal) if with_named else ()
        keys = [self.filter.inspect(mechanism.genome).key for mechanism in named]
        keys += np.random.default_rng(seed).permutation(list(self.mechanisms)).tolist()
        return tuple(dict.fromkeys(keys))[:GENERATION]

    def decode(self, assignment: Assignment) -> str | None:
        """Return a mechanism's digest; None if the policy does not allow the mechanism."""
        return self.filter.inspect(self.encoding.genome(assignment)).key or None

    def hypervolume(self, scores: list[Score]) -> float:
        """Return the hypervolume from ``corner`` to the ideal values, as a share of that box."""
        best = tuple(o.as_cost(o.ideal) for o in self.objectives)
        return hypervolume(normalise(scores, best, self.corner), (1.0, 1.0))


@cache
def bench(table: str = DEFAULT) -> Bench:
    """Return the space of a table at the sizes of its task."""
    loaded = load_table(table)
    space, policy = loaded.load_space()
    encoding, name = ENCODINGS[space.name], space.objectives[1]
    worst, most = encoding.region or (None, None)
    quality, cost = of_metric(encoding.metric), COSTS[name]
    standard = loaded.cost(loaded.setting.resolve(mechanism("mha").genome).key, name)
    objectives = (
        replace(quality, limit=worst),
        Objective(
            name,
            "min",
            cost.unit,
            cost.about,
            ideal=0.0,
            reference=COST_REFERENCE * standard,
            is_metric=False,
            limit=most and most * standard,
        ),
    )
    return Bench(loaded, space, policy, objectives, encoding)


@dataclass
class Problem:
    """The problem of one search, with a budget of trainings.

    Attributes:
        history: digest, quality and cost of each training.
        initial: digests of the first generation; if it is empty, each algorithm starts from its own
            initial design.
        report: returns the digests that the search reports after a number of trainings, the best
            quality first; by default they are the front of mean scores.
        num_requests: number of assignments requested so far.
    """

    measure: Recorded
    budget: int
    initial: tuple[str, ...] = ()
    history: list[tuple[str, float, float]] = field(default_factory=list)
    report: Callable[[int], list[str]] | None = None
    num_requests: int = 0

    @property
    def bench(self) -> Bench:
        """The space and its mechanisms."""
        return self.measure.bench

    @property
    def choices(self) -> Choices:
        """The categorical choices."""
        return self.bench.encoding.choices

    @property
    def initial_assignments(self) -> list[dict[str, str]]:
        """An assignment of each mechanism in ``initial``."""
        return [dict(self.bench.encodings[key]) for key in self.initial]

    @property
    def left(self) -> int:
        """Number of trainings left in the budget."""
        return self.budget - len(self.history)

    def train(self, assignment: Assignment) -> Score | None:
        """Train the mechanism of an assignment; return None without cost if it is illegal.

        Raises:
            SpentError: the budget is spent, or there were too many requests.
        """
        self.num_requests += 1
        if self.num_requests > MAX_REQUESTS * self.budget:
            raise SpentError
        key = self.bench.decode(assignment)
        return None if key is None else self.evaluate(key)

    def evaluate(self, key: str) -> Score:
        """Train a mechanism, with the next seed if it was trained before.

        Raises:
            SpentError: the budget is spent.
        """
        if self.left <= 0:
            raise SpentError
        repeat = sum(known == key for known, _, _ in self.history)
        score = self.measure.evaluate(key, repeat)
        self.history.append((key, *score))
        return score

    def reported(self, after: int | None = None) -> list[str]:
        """Return the reported digests after ``after`` trainings, the best quality first.

        Args:
            after: number of trainings; by default all.
        """
        history = self.history[:after]
        if self.report is not None:
            return self.report(len(history))
        scores: dict[str, list[Score]] = {}
        for key, *score in history:
            scores.setdefault(key, []).append((score[0], score[1]))
        keys = list(scores)
        means = [tuple(np.mean(scores[key], axis=0)) for key in keys]
        return [keys[i] for i in sorted(non_dominated(means), key=lambda i: means[i])]
