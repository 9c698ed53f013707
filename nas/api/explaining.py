"""``nas.explain``: measure what each part of a mechanism contributes, by ablation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, Unpack

from nas.api.comparing import train
from nas.api.execution import DEFAULT_POLICY, DEFAULT_TASK, Executing, check_legal
from nas.common.arguments import public
from nas.common.errors import ConfigError
from nas.common.objectives import MAX_SEED, check_count
from nas.evaluation.execution import Execution, make_evaluator
from nas.evaluation.study import cost_context, why_not
from nas.evaluation.trainer import calibrate_for
from nas.explaining import Bounds, plan_explanation
from nas.genome import Genome
from nas.report.comparison import TrainingRow
from nas.report.explanation import ExplainResult, make_explanation
from nas.space.rules import Policy, load_policy
from nas.store import RUNS, open_run
from nas.store.frozen import from_text, load_frozen_task, load_unchanged
from nas.store.sources import Source, resolve
from nas.store.writer import RunRecord
from nas.tasks import Data, ModelTask, load_task

MARGIN: Final = 0.01  # share of the distance from chance to the ideal


@public
def explain(
    source: str | Path | Genome,
    *,
    against: str | Path | Genome | None = None,
    task: str | None = None,
    data: str | None = None,
    seeds: int = 5,
    margin: float | None = None,
    seed: int = 0,
    policy: str | None = None,
    record: str | Path | None = None,
    runs: str | Path = RUNS,
    on_training: Callable[[TrainingRow, int, int], None] | None = None,
    **execution: Unpack[Executing],
) -> ExplainResult:
    """Measure what each part of a mechanism contributes, by ablation.

    Three kinds of mechanisms are trained with the same fresh seeds: the mechanism, its variants
    with one edit each, and the reference, also with about as many multiply-adds or parameters.
    The run of a genome stores the trainings and the result, which its report shows. Stored
    trainings are not repeated.

    Examples:
        >>> result = nas.explain("mha:window=4", task="tiny.yaml", seeds=2, backend="local")
        >>> "without window of 4" in [row.words for row in result.edits]
        True

    Args:
        margin: smallest difference that counts, in the metric's unit; by default a hundredth of the
            distance from chance to the ideal.
        policy: rules that all mechanisms must obey; by default those of the genome's run.
        Others: see ``nas.api.execution``.
    """
    check_count("seeds", seeds, least=2)
    check_count("seed", seed, 0, MAX_SEED)
    options, resolved = Execution(**execution), resolve(source, Path(runs))
    model_task, loaded, rules, known = _read(resolved, task, data, policy)
    reference = resolve(model_task.reference if against is None else against, Path(runs))
    for each in [resolved] if against is None else [resolved, reference]:
        check_legal(each, rules)
        if reason := why_not(each.genome, model_task):
            raise ConfigError(f"{each.text} cannot be trained under {model_task.name}: {reason}")
    metric = model_task.metrics(loaded)[0]
    if margin is None:
        margin = MARGIN * abs(metric.ideal - metric.chance)
    if not margin > 0:  # NaN is not above 0 either
        raise ConfigError(f"margin: found {margin}; expected a number above 0.")
    plan = plan_explanation(
        resolved.genome, Bounds(rules, model_task), cost_context(model_task, {}), reference
    )
    names = {plan.source: resolved.label}
    for change in plan.changes:
        names.setdefault(change.key, change.words)
    trained: dict[str, list[TrainingRow]] = {key: [] for key in plan.mechanisms}
    with (
        RunRecord([] if resolved.run is None else [resolved.run], record) as recorded,
        closing(make_evaluator(options, model_task, loaded)) as evaluator,
    ):
        rows = train(
            [(names[key], genome) for key, genome in plan.mechanisms.items()],
            model_task,
            loaded,
            lambda: evaluator,
            recorded,
            range(seeds),
            seed,
            purpose="explain",
            calibration=known or evaluator.measure(partial(calibrate_for, model_task)),
        )
        for done, (key, row) in enumerate(rows, 1):
            trained[key].append(row)
            if on_training is not None:
                on_training(row, done, seeds * len(trained))
        explanation = make_explanation(
            resolved.label, model_task.name, metric, margin, seeds, plan, trained
        )
        question = [explanation.mechanism.id, model_task.fingerprint(), loaded.digest]
        question += [] if against is None else [str(against)]
        recorded.add_answer(question, explanation.to_dict())
    return explanation


def _read(
    source: Source, task: str | None, data: str | None, policy: str | None
) -> tuple[ModelTask, Data, Policy, Mapping[str, Any]]:
    """Return the task, its data, the rules for genomes, and the unit times of the run.

    Each is taken from the argument, else from the run of the genome, else it is the default. There
    are no unit times if the task is not the run's, or the run measured none.
    """
    setup, rules = None, load_policy(policy or DEFAULT_POLICY)
    if source.run is not None:
        with open_run(source.run) as run:
            setup = run.setup
        rules = rules if policy is not None else from_text(setup.policy, Policy)
    if setup is None or source.run is None or task is not None:
        chosen = load_task(task or DEFAULT_TASK, data=data).main
        return chosen, chosen.load(), rules, {}
    run_task = load_frozen_task(setup.task, data)
    loaded, chosen = load_unchanged(source.run, setup.task, run_task), run_task.main
    return chosen, loaded if chosen is run_task else chosen.load(), rules, setup.calibration
