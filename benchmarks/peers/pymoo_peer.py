"""pymoo's NSGA-II with its documented operators for mixed variables.

An illegal mechanism violates a constraint, so it ranks behind all others.
"""

from __future__ import annotations

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.mixed import (
    MixedVariableDuplicateElimination,
    MixedVariableMating,
    MixedVariableSampling,
)
from pymoo.core.population import Population
from pymoo.core.problem import Problem as Declared
from pymoo.core.variable import Choice

from benchmarks.peers.problem import Problem

POPULATION = 12  # as ours; the default is 100


def nsga2(problem: Problem, seed: int) -> None:
    """Run NSGA-II; repeated assignments are eliminated, which is the default."""
    declared = Declared(
        vars={name: Choice(options=list(values)) for name, values in problem.choices.items()},
        n_obj=2,
        n_ieq_constr=1,
    )
    duplicates = MixedVariableDuplicateElimination()
    initial = Population.new(X=problem.initial_assignments)
    algorithm = NSGA2(
        pop_size=POPULATION,
        sampling=initial if problem.initial else MixedVariableSampling(),
        mating=MixedVariableMating(eliminate_duplicates=duplicates),
        eliminate_duplicates=duplicates,
    )
    algorithm.setup(declared, seed=seed, verbose=False)
    while problem.left:
        individuals = algorithm.ask()
        scores = [problem.train(individual.X) for individual in individuals]
        individuals.set("F", np.array([s or (0.0, 0.0) for s in scores]))
        individuals.set("G", np.array([[-1.0 if s else 1.0] for s in scores]))
        for individual in individuals:
            individual.evaluated.update({"F", "G"})
        algorithm.tell(infills=individuals)
