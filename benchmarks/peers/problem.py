"""What an optimiser is given: categories to choose from, and a budget of trainings.

The categories say what a genome of such a space says: where the scores' two sides come from, how
they are normalised, one operation more and the edges that it stands on, a second one for the plain
mean, and the four projections. Each choice changes one thing about the mechanism. Where a choice
means nothing it is ignored, as in any flat encoding: so several assignments can mean one mechanism.
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
# Of each space that is recorded in tables: its choices, and what guessing scores.
SPACES: Final[Mapping[str, tuple[Choices, float]]] = {
    "attention_bench": (ATTENTION, 1 / 10),
    "recall_bench": (RECALL, 1 / 16),
}
DEFAULT: Final = "attention-bench"
MAX_ASKED: Final = 100  # assignments for each training, after which a search is stuck


class SpentError(Exception):
    """No training is left, or the optimiser asks for nothing that can be trained."""


class Measure(Protocol):
    """Trainings, recorded or made up, by the mechanism's digest resolved at the task's sizes.

    Attributes:
        bench: whose mechanisms are trained.
        most_trainings: of one mechanism.
    """

    bench: Bench
    most_trainings: float

    def evaluate(self, key: str, repeat: int) -> Score:
        """What a mechanism's training gives; the last one again where there are no more."""
        ...

    def truth(self, key: str) -> Score:
        """What a report is judged by; no search sees it."""
        ...


@dataclass(frozen=True)
class Bench:
    """A space under a task, and how what is found in it is valued."""

    space: SearchSpace
    policy: Policy
    setting: CostContext
    objectives: tuple[Objective, Objective]
    choices: Choices

    @cached_property
    def judge(self) -> CandidateFilter:
        """Knows no mechanism: for looking at genomes, which it remembers."""
        return CandidateFilter(self.policy, self.setting, ["macs"])

    @cached_property
    def mechanisms(self) -> dict[str, tuple[Genome, float]]:
        """Genome in normal form and MACs of each mechanism that the choices reach, by digest."""
        genomes = {genome_of(assignment): None for assignment in self.assignments()}
        looks = map(self.judge.inspect, genomes)
        return {look.key: (look.genome, look.costs["macs"]) for look in looks if not look.note}

    def assignments(self) -> Iterator[Assignment]:
        """All that differ in more than what is ignored."""
        fields = ("normaliser", "left", "right", "extra", "edges", *FLAGS)
        plain = {name: values[0] for name, values in self.choices.items()}
        for values in product(*(self.choices[name] for name in fields)):
            if values[0] != "uniform":
                yield {**plain, **dict(zip(fields, values, strict=True))}
        if "uniform" in self.choices["normaliser"]:
            fields = ("extra", "edges", "second", "second_edge", *FLAGS)
            either = self.choices["second_edge"]
            rest = (self.choices[name] for name in fields[2:])
            for values in product(self.choices["extra"], either, *rest):
                named = dict(zip(fields, values, strict=True))
                yield {**plain, "normaliser": "uniform", **named}

    def decode(self, assignment: Assignment) -> str | None:
        """The resolved digest; None where the policy does not allow the mechanism."""
        return self.judge.inspect(genome_of(assignment)).key or None

    def hypervolume(self, scores: list[Score]) -> float:
        """Of accuracies from chance to 1, and MACs from none to twice those of MHA."""
        rows = [
            tuple(o.as_cost(x) for o, x in zip(self.objectives, s, strict=True)) for s in scores
        ]
        best = tuple(o.as_cost(o.ideal) for o in self.objectives)
        worst = tuple(o.as_cost(o.reference) for o in self.objectives)
        return hypervolume(normalise(rows, best, worst), (1.0, 1.0))


@cache
def bench(table: str = DEFAULT) -> Bench:
    """The space of a table at the sizes of its task."""
    found = load_table(table)
    return make_bench(load_space(found.space.name), found.setting)


def make_bench(space: SearchSpace, setting: CostContext) -> Bench:
    """A space that ``SPACES`` knows, at the sizes of a task."""
    choices, chance = SPACES[space.name]
    mha = costs_of(setting.resolve(mechanism("mha").genome), setting, ["macs"])["macs"]
    objectives = (
        Objective("accuracy", "max", "fraction", "", 1.0, chance, is_metric=True),
        Objective("macs", "min", "MAC", "", 0.0, 2 * mha, is_metric=False),
    )
    return Bench(space, load_policy(space.policy), setting, objectives, choices)


@dataclass
class Problem:
    """One search: it may train ``budget`` times, and is told what each training gave.

    Attributes:
        history: digest, accuracy and MACs of each training.
        is_free: whether a mechanism that comes again is told as before and costs nothing; an
            optimiser that cannot tell equal assignments is then spared.
        report: gives the digests that the search itself reports after so many trainings, where it
            does not leave that to us.
    """

    measure: Measure
    budget: int
    is_free: bool = False
    history: list[tuple[str, float, float]] = field(default_factory=list)
    report: Callable[[int], list[str]] | None = None
    asked: int = 0

    @property
    def bench(self) -> Bench:
        """Whose mechanisms are searched."""
        return self.measure.bench

    @property
    def choices(self) -> Choices:
        """The categories."""
        return self.bench.choices

    @property
    def left(self) -> int:
        """How many trainings may still be had."""
        return self.budget - len(self.history)

    @property
    def is_stuck(self) -> bool:
        """Whether so much was asked that nothing more will come of it."""
        return self.asked > MAX_ASKED * self.budget

    def train(self, assignment: Assignment) -> Score | None:
        """Train what an assignment means; None where it means nothing legal, which costs nothing.

        Raises:
            SpentError: the search is over.
        """
        self.asked += 1
        if self.is_stuck:
            raise SpentError
        key = self.bench.decode(assignment)
        if key is None:
            return None
        known = (score for name, *score in self.history if self.is_free and name == key)
        accuracy, macs = next(known, None) or self.evaluate(key)
        return accuracy, macs

    def evaluate(self, key: str) -> Score:
        """Train a mechanism; once more where it was trained before.

        Raises:
            SpentError: the search is over.
        """
        if self.left <= 0:
            raise SpentError
        repeat = sum(known == key for known, _, _ in self.history)
        score = self.measure.evaluate(key, repeat)
        self.history.append((key, *score))
        return score

    def reported(self, after: int | None = None) -> list[str]:
        """The non-dominated mechanisms, each by the mean of its trainings."""
        history = self.history[:after]
        if self.report is not None:
            return self.report(len(history))
        seen: dict[str, list[Score]] = {}
        for key, *score in history:
            seen.setdefault(key, []).append((score[0], score[1]))
        keys = list(seen)
        means = [np.mean(seen[key], axis=0) for key in keys]
        return [keys[i] for i in non_dominated([(-accuracy, macs) for accuracy, macs in means])]


def genome_of(assignment: Assignment) -> Genome:
    """The mechanism as written: one extra node, on each named edge that reads the same stream."""
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
            on = [name for name in names.split("+") if name in edges] or ["value"]
            stream = edges[on[0]]
            node = add(op, stream)
            edges.update({name: node for name in on if edges[name] == stream})
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
