"""Syne Tune's multi-objective regularized evolution, without a scheduler.

An illegal mechanism is not reported. Two algorithms are excluded: MO-ASHA, which needs trainings of
several lengths, and EHVI, whose fixed reference point does not fit these objectives.
"""

from __future__ import annotations

import numpy as np
from syne_tune.config_space import choice
from syne_tune.optimizer.schedulers.multiobjective import MultiObjectiveRegularizedEvolution

from benchmarks.peers.problem import Problem

POPULATION, SAMPLE = 24, 6  # as ours; the defaults are 100 and 10


def regularized_evolution(problem: Problem, seed: int) -> None:
    """Run the evolution: it mutates the best of a sample and removes the oldest."""
    space = {name: choice(list(values)) for name, values in problem.choices.items()}
    np.random.seed(seed)  # noqa: NPY002  # its first samples use the global generator
    searcher = MultiObjectiveRegularizedEvolution(
        space,
        points_to_evaluate=problem.initial_assignments,
        population_size=POPULATION,
        sample_size=SAMPLE,
        random_seed=seed,
    )
    number = 0
    while problem.left:
        assignment = searcher.suggest()
        score = problem.train(assignment)
        if score is not None:
            searcher.on_trial_complete(number, assignment, list(score))
            number += 1
