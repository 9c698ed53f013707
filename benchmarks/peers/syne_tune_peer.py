"""Syne Tune: multi-objective regularized evolution, the searcher on its own.

An illegal mechanism is not told. Left out: MO-ASHA, which is about trainings of several lengths,
and EHVI, which measures from a fixed point that suits objectives below 2 in another sign.
"""

from __future__ import annotations

import numpy as np
from syne_tune.config_space import choice
from syne_tune.optimizer.schedulers.multiobjective import MultiObjectiveRegularizedEvolution

from benchmarks.peers.problem import Problem

POPULATION, SAMPLE = 24, 6  # as ours; the defaults are 100 and 10


def regularized_evolution(problem: Problem, seed: int) -> None:
    """The best of a sample by non-dominated sorting is mutated, the oldest leaves."""
    space = {name: choice(list(values)) for name, values in problem.choices.items()}
    np.random.seed(seed)  # noqa: NPY002  # its first samples come from there
    searcher = MultiObjectiveRegularizedEvolution(
        space, population_size=POPULATION, sample_size=SAMPLE, random_seed=seed
    )
    number = 0
    while problem.left:
        assignment = searcher.suggest()
        score = problem.train(assignment)
        if score is not None:
            accuracy, macs = score
            searcher.on_trial_complete(number, assignment, [-accuracy, macs])
            number += 1
