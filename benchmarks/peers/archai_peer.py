"""Archai: its evolution of the Pareto front, as it comes: 10 at random first, then each iteration
a mutant of each member of the front, 5 crossovers and 5 at random.

Archai leaves sampling, mutation and crossover to the space: here one choice is drawn anew, or each
choice comes from either parent. It asks whether a model is valid; illegal ones are not.
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

from benchmarks.peers.problem import Assignment, Problem, Score, SpentError

ENDLESS = 10**6  # iterations; the budget ends the search


class Space(EvolutionarySearchSpace):
    """Assignments as models, named by what they say."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.rng = problem, random.Random(seed)

    @overrides
    def random_sample(self) -> ArchaiModel:
        return self._model({n: self.rng.choice(v) for n, v in self.problem.choices.items()})

    @overrides
    def mutate(self, arch: ArchaiModel) -> ArchaiModel:
        now = arch.metadata["assignment"]
        name = self.rng.choice([name for name, all_ in self.problem.choices.items() if all_[1:]])
        others = [value for value in self.problem.choices[name] if value != now[name]]
        return self._model({**now, name: self.rng.choice(others)})

    @overrides
    def crossover(self, arch_list: list[ArchaiModel]) -> ArchaiModel:
        parents = [arch.metadata["assignment"] for arch in arch_list]
        return self._model({n: self.rng.choice(parents)[n] for n in self.problem.choices})

    def _model(self, assignment: Assignment) -> ArchaiModel:
        self.problem.asked += 1
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
    """One number of a training's score; or whether the mechanism is legal."""

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
    """It never trains an assignment twice."""
    logging.disable(logging.WARNING)
    scores: dict[str, Score] = {}
    objectives = SearchObjectives()
    objectives.add_objective("accuracy", Part(problem, scores, 0), higher_is_better=True)
    objectives.add_objective("macs", Part(problem, scores, 1), higher_is_better=False)
    objectives.add_constraint("legal", Part(problem, scores, None), (0.5, 1.5))
    try:
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
            space: Any = Space(problem, seed)
            search = EvolutionParetoSearch(space, objectives, folder, ENDLESS, seed=seed)
            search.search_state.save_all_2d_pareto_evolution_plots = _no_plots
            search.search()
    finally:
        logging.disable(logging.NOTSET)


def _no_plots(folder: str) -> None:
    """They would take most of the time."""
