"""Archai's evolution of the Pareto front with default settings.

It trains 10 random models first, then in each iteration a mutant of each member of the front, 5
crossovers and 5 random models. The space defines sampling, mutation and crossover in Archai: here
a mutation redraws one choice, and a crossover takes each choice from a random parent. Illegal
mechanisms are reported as invalid.
"""

from __future__ import annotations

import logging
import random
import tempfile
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

from archai.discrete_search.algos.evolution_pareto import EvolutionParetoSearch
from archai.discrete_search.api import (
    ArchaiModel,
    EvolutionarySearchSpace,
    ModelEvaluator,
    SearchObjectives,
)
from overrides import overrides

from benchmarks.peers.encodings import Assignment
from benchmarks.peers.problem import Problem, Score, SpentError

ENDLESS = 10**6  # iterations; the budget ends the search


class Space(EvolutionarySearchSpace):
    """The categorical choices as a search space of Archai; a model's ID is its choices as text."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.rng = problem, random.Random(seed)
        self.initial = problem.initial_assignments

    @overrides
    def random_sample(self) -> ArchaiModel:
        if self.initial:
            return self._model(self.initial.pop(0))
        return self._model({n: self.rng.choice(v) for n, v in self.problem.choices.items()})

    @overrides
    def mutate(self, arch: ArchaiModel) -> ArchaiModel:
        current = arch.metadata["assignment"]
        name = self.rng.choice([n for n, values in self.problem.choices.items() if len(values) > 1])
        others = [value for value in self.problem.choices[name] if value != current[name]]
        return self._model({**current, name: self.rng.choice(others)})

    @overrides
    def crossover(self, arch_list: list[ArchaiModel]) -> ArchaiModel:
        parents = [arch.metadata["assignment"] for arch in arch_list]
        return self._model({n: self.rng.choice(parents)[n] for n in self.problem.choices})

    def _model(self, assignment: Assignment) -> ArchaiModel:
        self.problem.num_requests += 1
        if self.problem.is_stuck:
            raise SpentError
        return ArchaiModel(None, " ".join(assignment.values()), {"assignment": assignment})

    @overrides
    def save_arch(self, model: ArchaiModel, file_path: str) -> None:
        pass

    @overrides
    def load_arch(self, file_path: str) -> ArchaiModel:
        raise NotImplementedError

    @overrides
    def save_model_weights(self, model: ArchaiModel, file_path: str) -> None:
        pass

    @overrides
    def load_model_weights(self, model: ArchaiModel, file_path: str) -> None:
        pass


class Part(ModelEvaluator):
    """One number of a training's score, or the legality of the mechanism if ``part`` is None."""

    def __init__(self, problem: Problem, scores: dict[str, Score], part: int | None) -> None:
        self.problem, self.scores, self.part = problem, scores, part

    @overrides
    def evaluate(self, arch: ArchaiModel, budget: float | None = None) -> float:
        assignment = arch.metadata["assignment"]
        if self.part is None:
            return float(self.problem.bench.decode(assignment) is not None)
        if arch.archid not in self.scores:
            score = self.problem.train(assignment)
            assert score is not None
            self.scores[arch.archid] = score
        return self.scores[arch.archid][self.part]


def evolution_pareto(problem: Problem, seed: int) -> None:
    """Run the search; Archai trains each assignment once."""
    logging.disable(logging.WARNING)
    scores: dict[str, Score] = {}
    objectives = SearchObjectives()
    objectives.add_objective("quality", Part(problem, scores, 0), higher_is_better=False)
    objectives.add_objective("cost", Part(problem, scores, 1), higher_is_better=False)
    objectives.add_constraint("legal", Part(problem, scores, None), (0.5, 1.5))
    try:
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
            space: Any = Space(problem, seed)
            search = EvolutionParetoSearch(
                space,
                objectives,
                folder,
                ENDLESS,
                init_num_models=len(problem.initial) or 10,  # 10 is the default
                seed=seed,
            )
            search.search_state.save_all_2d_pareto_evolution_plots = _no_plots
            search.search()
    finally:
        logging.disable(logging.NOTSET)


def _no_plots(folder: str) -> None:
    """Replace Archai's plots, which would take most of the time."""
