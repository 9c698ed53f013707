"""Optuna: its NSGA-II, its tree-structured Parzen estimator, and its Gaussian process.

Each proposes until the budget is spent. An illegal mechanism is told as a failed trial, as Optuna's
documents say for what has no value: its samplers leave those out.
"""

from __future__ import annotations

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.trial import TrialState

from benchmarks.peers.problem import Problem

POPULATION = 12  # as ours; Optuna's default of 50 would be mostly random in so few trainings


def nsga2(problem: Problem, seed: int) -> None:
    """NSGAIISampler, uniform crossover."""
    _search(problem, NSGAIISampler(population_size=POPULATION, seed=seed))


def tpe(problem: Problem, seed: int) -> None:
    """TPESampler as it comes: 10 random trials, then one choice at a time."""
    _search(problem, TPESampler(seed=seed))


def gp(problem: Problem, seed: int) -> None:
    """GPSampler as it comes: 10 random trials, then expected improvement of the hypervolume."""
    _search(problem, GPSampler(seed=seed, deterministic_objective=False))


def _search(problem: Problem, sampler: BaseSampler) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    while problem.left:
        trial = study.ask()
        assignment = {
            name: trial.suggest_categorical(name, values)
            for name, values in problem.choices.items()
        }
        score = problem.train(assignment)
        if score is None:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, score)
