"""Optuna's NSGA-II and tree-structured Parzen estimator.

Each proposes until the budget is spent. An illegal mechanism is reported as a failed trial, as
Optuna's documentation recommends for missing values; its samplers ignore such trials. Its Gaussian
process is excluded, because 30 trainings take 190 core-seconds.
"""

from __future__ import annotations

import optuna
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.trial import TrialState

from benchmarks.peers.problem import Problem

POPULATION = 12  # as ours; the default of 50 would be mostly random within these budgets


def nsga2(problem: Problem, seed: int) -> None:
    """Run NSGAIISampler with uniform crossover."""
    _search(problem, NSGAIISampler(population_size=POPULATION, seed=seed))


def tpe(problem: Problem, seed: int) -> None:
    """Run TPESampler with default settings: 10 random trials, then one choice at a time."""
    _search(problem, TPESampler(seed=seed))


def _search(problem: Problem, sampler: BaseSampler) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    for assignment in problem.initial_assignments:
        study.enqueue_trial(assignment)
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
