"""SMAC's ParEGO over random forests, with the default facade for hyperparameters.

Its own initial design is a Sobol sequence of a quarter of the budget. It may train an assignment up
to three times, also in a first generation that all algorithms share. An illegal mechanism is
reported as crashed, with the worst value of both objectives.
"""

from __future__ import annotations

import logging
import tempfile

from ConfigSpace import Categorical, Configuration, ConfigurationSpace
from smac import HyperparameterOptimizationFacade, Scenario
from smac.multi_objective.parego import ParEGO
from smac.runhistory import StatusType, TrialValue

from benchmarks.peers.problem import Problem


def parego(problem: Problem, seed: int) -> None:
    """Run ParEGO, which draws random weights of the objectives for each proposal."""
    space = ConfigurationSpace(seed=seed)
    space.add([Categorical(name, list(values)) for name, values in problem.choices.items()])
    worst = list(problem.bench.corner)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            space,
            objectives=["quality", "cost"],
            crash_cost=worst,
            n_trials=problem.budget,
            output_directory=folder,
            seed=seed,
        )
        initial = [Configuration(space, values) for values in problem.initial_assignments]
        design = HyperparameterOptimizationFacade.get_initial_design(
            scenario, n_configs=0 if initial else None, additional_configs=initial
        )
        smac = HyperparameterOptimizationFacade(
            scenario,
            _never_called,
            initial_design=design,
            multi_objective_algorithm=ParEGO(scenario),
            logging_level=logging.ERROR,
            overwrite=True,
        )
        while problem.left:
            info = smac.ask()
            score = problem.train(dict(info.config))
            if score is None:
                value = TrialValue(worst, status=StatusType.CRASHED)
            else:
                value = TrialValue(list(score))
            smac.tell(info, value)


def _never_called(config: object, seed: int = 0) -> list[float]:
    raise AssertionError("SMAC is used by ask and tell only")
