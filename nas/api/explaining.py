"""Explain: what each part of a mechanism is worth, by ablation with paired fresh seeds."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.api.training import check_legal, check_one_model, execution_of
from nas.common.errors import ConfigError, RunError
from nas.costs import DEFAULT_COSTS, costs_of
from nas.evaluation.backends import make_evaluator
from nas.evaluation.journal import JournaledEvaluator
from nas.evaluation.study import why_not
from nas.explaining import Bounds, Race, plan_explanation
from nas.report.explanation import explanation_answer
from nas.report.trials import Training
from nas.searching.setup import MAX_COUNT, setting_of
from nas.space.validation import PolicyFile, compile_policy, load_policy
from nas.store import RUNS, open_run
from nas.store.answers import keep_answer
from nas.store.frozen import from_text, load_unchanged, thawed_task
from nas.store.sources import resolve
from nas.tasks import load_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from nas.api.training import Executing
    from nas.evaluation.trial import Evaluator
    from nas.explaining import Explanation
    from nas.genome import Genome
    from nas.space.validation import Policy
    from nas.store.sources import Source
    from nas.tasks import Data, ModelTask

TASK: Final = "vit-cifar10"
POLICY: Final = "score_normalize_aggregate"
MARGIN: Final = 0.01  # of the way from chance to the ideal
LOGGER: Final = logging.getLogger("nas")
COSTS: Final = (*DEFAULT_COSTS, "time_ms")


def explain(
    source: str | Path | Genome,
    *,
    task: str | None = None,
    data: str | None = None,
    seeds: int = 5,
    most_seeds: int | None = None,
    margin: float | None = None,
    seed: int = 0,
    policy: str | None = None,
    record: str | Path | None = None,
    runs: str | Path = RUNS,
    heard: Callable[[Training, int, int], None] | None = None,
    unkept: Callable[[str], None] = LOGGER.warning,
    **execution: Unpack[Executing],
) -> dict[str, Any]:
    """Say what each part of a mechanism is worth; the answer of ``nas explain --json``.

    The mechanism is trained beside what single edits make of it, beside the steps that lead to it
    from standard attention, and beside standard attention of about its costs; all with the same
    seeds, which no search and no other command has used. The answer on a RUN/ID is kept in the
    run's folder, for its report.

    Args:
        task: by name or path; that of its run for RUN/ID, else ``vit-cifar10``.
        data: what to train on, as the task's family reads it; of a run's task, where its data are
            now, if they have moved.
        seeds: trainings of each.
        most_seeds: comparisons that are unresolved get twice the seeds, and so on up to these; as
            many as ``seeds`` by default; ``nas.common.differences`` says how verdicts allow for it.
        margin: what is smaller than this either way is "the same", in the metric's own unit; by
            default a hundredth of the way from chance to the ideal.
        seed: what the training seeds derive from.
        policy: what all mechanisms must obey; the run's own for RUN/ID.
        record: a file that keeps every finished training; what it holds is not repeated.
        heard: called with each training that ends, how many have, and how many there are so far.
        unkept: called with why the answer could not be kept in the run's folder; by default the
            logger ``nas`` is told.

    Raises:
        ViolationError: the mechanism is not legal.
        NasError: something given cannot be used; the message says what and why.
    """
    looks = looks_of(seeds, seeds if most_seeds is None else most_seeds)
    given = execution_of(execution)
    found = resolve(source, Path(runs))
    chosen, loaded, rules = _where(found, task, data, policy)
    check_legal(found, rules)
    if reason := why_not(found.genome, chosen):
        raise ConfigError(f"{found.text} cannot be trained under {chosen.name}: {reason}")
    metric = chosen.metrics(loaded)[0]
    if margin is None:
        margin = MARGIN * abs(metric.ideal - metric.chance)
    if not margin > 0:  # NaN is not above 0 either
        raise ConfigError(f"margin: found {margin}; expected a number above 0.")
    plan = plan_explanation(found.genome, Bounds(rules, chosen), setting_of(chosen, {}))
    evaluator: Evaluator = make_evaluator(given, chosen, loaded)
    try:
        setting = setting_of(chosen, evaluator.calibrate())
        costs = {key: costs_of(own, setting, COSTS) for key, own in plan.mechanisms.items()}
        if record is not None:
            evaluator = JournaledEvaluator(evaluator, Path(record), chosen, loaded)
        race, names = Race(plan, metric, looks, margin), _names(found, plan)
        for done, (one, total) in enumerate(race.run(chosen, evaluator, seed), 1):
            if heard is not None:
                what = (names[one.name], one.digest, one.repeat, one.evaluation)
                heard(Training(*what, costs=costs[one.name], metric=metric), done, total)
    finally:
        evaluator.close()
    answer = explanation_answer(found.text, chosen.name, race, costs)
    if found.run is not None:
        question = [answer["id"], chosen.fingerprint(), loaded.digest]
        try:
            keep_answer(found.run, "explain", question, answer)
        except RunError as error:
            unkept(str(error))
    return answer


def looks_of(seeds: int, most: int) -> tuple[int, ...]:
    """The numbers of seeds after which verdicts are looked at: doubled up to the most.

    Raises:
        ConfigError: too few for a verdict, or a bound below the beginning.
    """
    if not 2 <= seeds <= MAX_COUNT:
        raise ConfigError(
            f"seeds: found {seeds}; expected a number from 2 to {MAX_COUNT:,}: one pair says "
            "nothing of its spread."
        )
    if not seeds <= most <= MAX_COUNT:
        raise ConfigError(
            f"most-seeds: found {most}; expected a number from seeds, {seeds}, to {MAX_COUNT:,}."
        )
    looks = [seeds]
    while looks[-1] < most:
        looks.append(min(most, 2 * looks[-1]))
    return tuple(looks)


def _where(
    source: Source, task: str | None, data: str | None, policy: str | None
) -> tuple[ModelTask, Data, Policy]:
    """Task, data and policy: as given, else those of the source's run, else the usual ones."""
    rules = None if policy is None else load_policy(policy)
    if source.run is None or task is not None:
        chosen = load_task(task or TASK, data=data)
        check_one_model(chosen)
        loaded = chosen.load()
        if source.run is None or rules is not None:
            return chosen.main, loaded, rules or load_policy(POLICY)
    with open_run(source.run) as run:
        setup = run.setup
    own = compile_policy(from_text(setup.policy, PolicyFile), setup.policy.name)
    if task is None:
        chosen = thawed_task(setup.task, data)
        check_one_model(chosen)
        loaded = load_unchanged(source.run, setup.task, chosen)
    return chosen.main, loaded, rules or own


def _names(source: Source, plan: Explanation) -> dict[str, str]:
    """What the trainings of each mechanism are called while they go on."""
    names = {plan.source: source.text}
    for comparison in plan.comparisons:
        names.setdefault(comparison.after, comparison.words)
    return {key: names.get(key, "mha") for key in plan.mechanisms}
