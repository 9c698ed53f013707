"""The result of ``nas.confirm``: the comparison of mechanisms trained again with fresh seeds."""

from __future__ import annotations

from nas.evaluation.trial import Training
from nas.genome.naming import digits_needed, find_name
from nas.report.comparison import Comparison, TrainingRow, compare
from nas.report.run_view import FRESH, found_in_search
from nas.searching.confirm import ComparedMechanism, ConfirmationPlan, ConfirmationStage
from nas.store import Run
from nas.training.user_module import UserModule


def make_confirmation(run: Run, plan: ConfirmationPlan) -> Comparison:
    """Return the comparison of the planned mechanisms, computed from the run's trainings."""
    trained = [
        training_row(plan, stage, mechanism, training)
        for mechanism in plan.trained.values()
        for training in run.trainings("confirm")
        if training.key == mechanism.key and training.repeat < plan.repeats
        for stage in plan.stages
        if training.task in stage.rates
    ]
    found = {
        _unique_name(plan, mechanism): found_in_search(mechanism.candidate, plan.metric)
        for mechanism in plan.trained.values()
    }
    return compare(
        trained,
        {FRESH[stage.part]: stage.task.name for stage in plan.stages},
        _unique_name(plan, plan.against),
        plan.seeds,
        found=found,
        run=run.name,
    )


def training_row(
    plan: ConfirmationPlan,
    stage: ConfirmationStage,
    mechanism: ComparedMechanism,
    training: Training,
) -> TrainingRow:
    """Return a training of a confirmation as a training of a comparison."""
    return TrainingRow(
        _unique_name(plan, mechanism),
        mechanism.digest,
        FRESH[stage.part],
        training.repeat,
        training.evaluation,
        mechanism.costs,
        plan.metric,
        isinstance(mechanism.mechanism, UserModule),
        stage.rates[training.task],
    )


def _unique_name(plan: ConfirmationPlan, mechanism: ComparedMechanism) -> str:
    if mechanism.name or isinstance(mechanism.mechanism, UserModule):
        return mechanism.name
    length = digits_needed(other.digest for other in plan.trained.values())
    return find_name(mechanism.mechanism, mechanism.digest, length)
