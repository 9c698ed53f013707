"""pymoo: NSGA-II with the operators that its documents give for mixed variables.

An illegal mechanism breaks a constraint, so that it ranks behind all others.
"""

from __future__ import annotations

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.mixed import (
    MixedVariableDuplicateElimination,
    MixedVariableMating,
    MixedVariableSampling,
)
from pymoo.core.problem import Problem as Declared
from pymoo.core.variable import Choice

from benchmarks.peers.problem import Problem

POPULATION = 12  # as ours; the default is 100


def nsga2(problem: Problem, seed: int) -> None:
    """Assignments that came before are eliminated, as by default."""
    declared = Declared(
        vars={name: Choice(options=list(values)) for name, values in problem.choices.items()},
        n_obj=2,
        n_ieq_constr=1,
    )
    same = MixedVariableDuplicateElimination()
    algorithm = NSGA2(
        pop_size=POPULATION,
        sampling=MixedVariableSampling(),
        mating=MixedVariableMating(eliminate_duplicates=same),
        eliminate_duplicates=same,
    )
    algorithm.setup(declared, seed=seed, verbose=False)
    while problem.left:
        asked = algorithm.ask()
        scores = [problem.train(individual.X) for individual in asked]
        asked.set("F", np.array([(-s[0], s[1]) if s else (0.0, 0.0) for s in scores]))
        asked.set("G", np.array([[-1.0 if s else 1.0] for s in scores]))
        for individual in asked:
            individual.evaluated.update({"F", "G"})
        algorithm.tell(infills=asked)
