"""PyGlove's NSGA-II, which mutates the elite in turn, from its evolution library.

An illegal mechanism is skipped and not reported to the evolution.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyglove as pg
from pyglove.ext import evolution
from pyglove.ext.evolution.nsga2 import nsga2 as make_nsga2

from benchmarks.peers.problem import Problem

POPULATION = 12  # as ours, with twice as many random ones first; the default is 100


def nsga2(problem: Problem, seed: int) -> None:
    """Run NSGA-II: two random populations, then uniform mutations of single choices."""
    space = pg.Dict({name: pg.oneof(list(values)) for name, values in problem.choices.items()})
    mutator = evolution.mutators.Uniform(seed=seed)
    algorithm = make_nsga2(mutator, population_size=POPULATION, seed=seed)
    if problem.initial:
        algorithm.rebind(population_init=_first_generation(problem, space))
    random.seed(seed)
    for assignment, feedback in pg.sample(
        space, algorithm, metrics_to_optimize=["quality", "economy"]
    ):
        score = problem.train(assignment)
        if score is None:
            feedback.skip()
        else:
            quality, cost = score
            feedback((-quality, -cost))


def _first_generation(problem: Problem, space: pg.Dict) -> pg.DNAGenerator:
    template = pg.template(space)

    @pg.geno.dna_generator
    def generate(dna_spec: pg.DNASpec) -> Iterator[pg.DNA]:
        for assignment in problem.initial_assignments:
            yield template.encode(pg.Dict(assignment)).use_spec(dna_spec)

    return generate()
