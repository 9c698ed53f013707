"""The problem that an optimiser solves: categorical choices, and a budget of trainings.

The choices encode the genomes of a space: the two inputs of the scores, their normaliser, a further
operation and its edges, a second operation for the plain mean, and the four projections. Each
choice changes one part of the mechanism. Choices without effect are ignored, as in any flat
encoding, so several assignments can mean the same mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Final, Protocol

import numpy as np

from nas.common.objectives import Objective
from nas.common.pareto import hypervolume, non_dominated, normalise
from nas.costs import CostContext, costs_of
from nas.genome import FLAGS, Genome, Node, Projections, Ref
from nas.genome.mechanisms import mechanism
from nas.searching.filtering import CandidateFilter
from nas.searching.tabular.table import load_table
from nas.space import SearchSpace, load_space
from nas.space.space import seeds
from nas.space.validation import Policy, load_policy

Assignment = Mapping[str, str]
Score = tuple[float, float]  # accuracy, MACs

EDGES: Final = (
    "left", "right", "left+right", "value", "left+value", "right+value", "left+right+value",
    "output",
)  # fmt: skip
SIDES: Final = ("q", "k", "v")
EITHER: Final = ("yes", "no")
Choices = Mapping[str, tuple[str, ...]]
ATTENTION: Final[Choices] = {
    "normaliser": ("softmax", "softmax_free", "uniform"),
    "left": SIDES,
    "right": SIDES,
    "extra": ("none", "rope", "short_conv", "output_gate"),
    "edges": EDGES,
    "second": ("none", "rope", "short_conv", "output_gate"),
    "second_edge": ("value", "output"),
    **dict.fromkeys(FLAGS, EITHER),
}
RECALL: Final[Choices] = {
    "normaliser": ("softmax", "sigmoid", "softmax_free"),
    "left": SIDES,
    "right": SIDES,
    "extra": ("none", "short_conv"),
    "edges": EDGES,
    **dict.fromkeys(FLAGS, EITHER),
    "has_wv": ("yes",),
}
# For each space with recorded tables: its choices, and the accuracy of guessing.
SPACES: Final[Mapping[str, tuple[Choices, float]]] = {
    "attention_bench": (ATTENTION, 1 / 10),
    "recall_bench": (RECALL, 1 / 16),
}
DEFAULT: Final = "attention-bench"
GENERATION: Final = 12  # mechanisms that our algorithms and most peers propose at a time
MAX_REQUESTS: Final = 100  # requests per training of the budget, after which a search is stopped


class SpentError(Exception):
    """Raised if the budget is spent, or if the optimiser requests no legal mechanism."""


class Measure(Protocol):
    """Trainings, recorded or synthetic, by the mechanism's digest at the task's sizes.

    Attributes:
        bench: the space and its mechanisms.
        most_trainings: largest number of trainings of one mechanism.
    """

    bench: Bench
    most_trainings: float

    def evaluate(self, key: str, repeat: int) -> Score:
        """Return the score of a mechanism's training; the last one if there are no more."""
        ...

    def truth(self, key: str) -> Score:
        """Return the ground truth that scores a report; no search sees it."""
        ...


@dataclass(frozen=True)
class Bench:
    """A space under a task, with its objectives and categorical choices."""

    space: SearchSpace
    policy: Policy
    setting: CostContext
    objectives: tuple[Objective, Objective]
    choices: Choices

    @cached_property
    def filter(self) -> CandidateFilter:
        """A filter without trained mechanisms, which resolves genomes and caches the results."""
        return CandidateFilter(self.policy, self.setting, ["macs"])

    @cached_property
    def mechanisms(self) -> dict[str, tuple[Genome, float]]:
        """Genome in normal form and MACs of each mechanism in the encoding, by digest."""
        infos = (self.filter.inspect(genome_of(a)) for a in self.encodings.values())
        return {info.key: (info.genome, info.costs["macs"]) for info in infos}

    @cached_property
    def encodings(self) -> dict[str, Assignment]:
        """The first assignment that means each mechanism, by the mechanism's digest."""
        encodings: dict[str, Assignment] = {}
        for assignment in self.assignments():
            if key := self.decode(assignment):
                encodings.setdefault(key, assignment)
        return encodings

    def initial(self, seed: int, *, with_named: bool = False) -> tuple[str, ...]:
        """Return the digests of a first generation that all algorithms can start from.

        Args:
            seed: seed of the random choice, uniform over all mechanisms.
            with_named: whether the named mechanisms of the space come first.
        """
        named = seeds(self.space, self.policy, self.setting.is_causal) if with_named else ()
        keys = [self.filter.inspect(mechanism.genome).key for mechanism in named]
        keys += np.random.default_rng(seed).permutation(list(self.mechanisms)).tolist()
        return tuple(dict.fromkeys(keys))[:GENERATION]

    def assignments(self) -> Iterator[Assignment]:
        """Yield all assignments that differ in a choice with an effect."""
        fields = ("normaliser", "left", "right", "extra", "edges", *FLAGS)
        plain = {name: values[0] for name, values in self.choices.items()}
        for values in product(*(self.choices[name] for name in fields)):
            if values[0] != "uniform":
                yield {**plain, **dict(zip(fields, values, strict=True))}
        if "uniform" in self.choices["normaliser"]:
            fields = ("extra", "edges", "second", "second_edge", *FLAGS)
            second_edges = self.choices["second_edge"]
            rest = (self.choices[name] for name in fields[2:])
            for values in product(self.choices["extra"], second_edges, *rest):
                named = dict(zip(fields, values, strict=True))
                yield {**plain, "normaliser": "uniform", **named}

    def decode(self, assignment: Assignment) -> str | None:
        """Return a mechanism's digest; None if the policy does not allow the mechanism."""
        return self.filter.inspect(genome_of(assignment)).key or None

    def hypervolume(self, scores: list[Score]) -> float:
        """Return the hypervolume up to the accuracy of guessing and twice the MACs of MHA."""
        rows = [
            tuple(o.as_cost(x) for o, x in zip(self.objectives, s, strict=True)) for s in scores
        ]
        best = tuple(o.as_cost(o.ideal) for o in self.objectives)
        worst = tuple(o.as_cost(o.reference) for o in self.objectives)
        return hypervolume(normalise(rows, best, worst), (1.0, 1.0))


@cache
def bench(table: str = DEFAULT) -> Bench:
    """Return the space of a table at the sizes of its task."""
    loaded = load_table(table)
    return make_bench(load_space(loaded.space.name), loaded.setting)


def make_bench(space: SearchSpace, setting: CostContext) -> Bench:
    """Return a space in ``SPACES`` at the sizes of a task."""
    choices, chance = SPACES[space.name]
    mha = costs_of(setting.resolve(mechanism("mha").genome), setting, ["macs"])["macs"]
    objectives = (
        Objective("accuracy", "max", "fraction", "", 1.0, chance, is_metric=True),
        Objective("macs", "min", "MAC", "", 0.0, 2 * mha, is_metric=False),
    )
    return Bench(space, load_policy(space.policy), setting, objectives, choices)


@dataclass
class Problem:
    """The problem of one search, with a budget of trainings.

    Attributes:
        history: digest, accuracy and MACs of each training.
        is_free: whether a repeated mechanism costs nothing and returns its first score, in favour
            of optimisers that do not recognise equal assignments.
        initial: digests of the first generation; if it is empty, each algorithm starts from its own
            initial design.
        report: returns the digests that the search reports after a number of trainings; by default
            they are the front of mean scores.
        num_requests: number of assignments requested so far.
    """

    measure: Measure
    budget: int
    is_free: bool = False
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
        return self.bench.choices

    @property
    def initial_assignments(self) -> list[dict[str, str]]:
        """An assignment of each mechanism in ``initial``."""
        return [dict(self.bench.encodings[key]) for key in self.initial]

    @property
    def left(self) -> int:
        """Number of trainings left in the budget."""
        return self.budget - len(self.history)

    @property
    def is_stuck(self) -> bool:
        """Whether the number of requests exceeds the limit."""
        return self.num_requests > MAX_REQUESTS * self.budget

    def train(self, assignment: Assignment) -> Score | None:
        """Train the mechanism of an assignment; return None without cost if it is illegal.

        Raises:
            SpentError: the budget is spent, or there were too many requests.
        """
        self.num_requests += 1
        if self.is_stuck:
            raise SpentError
        key = self.bench.decode(assignment)
        if key is None:
            return None
        previous = (score for name, *score in self.history if self.is_free and name == key)
        accuracy, macs = next(previous, None) or self.evaluate(key)
        return accuracy, macs

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
        """Return the reported digests after ``after`` trainings, by default after all."""
        history = self.history[:after]
        if self.report is not None:
            return self.report(len(history))
        scores: dict[str, list[Score]] = {}
        for key, *score in history:
            scores.setdefault(key, []).append((score[0], score[1]))
        keys = list(scores)
        means = [np.mean(scores[key], axis=0) for key in keys]
        return [keys[i] for i in non_dominated([(-accuracy, macs) for accuracy, macs in means])]


def genome_of(assignment: Assignment) -> Genome:
    """Return the genome of an assignment.

    The extra operation is put on the named edges that come from the same stream.
    """
    nodes: list[Node] = []

    def add(op: str, *inputs: Ref) -> int:
        nodes.append(Node(op, inputs))
        return len(nodes) - 1

    extras = [(assignment["extra"], assignment["edges"])]
    edges: dict[str, Ref] = {side: assignment[side] for side in ("left", "right")}
    if assignment["normaliser"] == "uniform":
        edges = {}
        extras.append((assignment["second"], assignment["second_edge"]))
    edges["value"] = "v"
    for op, names in extras:
        if op != "none" and names != "output":
            edge_names = [name for name in names.split("+") if name in edges] or ["value"]
            stream = edges[edge_names[0]]
            node = add(op, stream)
            edges.update({name: node for name in edge_names if edges[name] == stream})
    if assignment["normaliser"] == "uniform":
        weights = add("uniform", "v")
    else:
        scores = add("scaled_dot_product", edges["left"], edges["right"])
        weights = add(assignment["normaliser"], scores)
    out = add("weighted_sum", weights, edges["value"])
    for op, names in extras:
        if op != "none" and names == "output":
            out = add(op, out)
    flags = {flag: assignment[flag] == "yes" for flag in FLAGS}
    return Genome(tuple(nodes), Projections(**flags))
