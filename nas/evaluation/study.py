"""Train mechanisms under a task, each with several seeds, without a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nas.common.errors import NasError
from nas.compiler import ResolvedGenome
from nas.costs import CostContext, costs_of
from nas.evaluation.trial import (
    Evaluation,
    Evaluator,
    Purpose,
    Training,
    Trial,
    is_retried,
    run_trials,
    task_fingerprint,
    training_seed,
)
from nas.tasks import Data, Task
from nas.training.user_check import CHECK_SECONDS, check_user_module, module_costs
from nas.training.user_module import Mechanism, UserModule


def study(
    mechanisms: Sequence[tuple[str, Mechanism]],
    task: Task,
    data: Data,
    evaluator: Evaluator,
    *,
    repeats: Iterable[int],
    seed: int = 0,
    purpose: Purpose = "evaluate",
    known: Iterable[Training] = (),
) -> Iterator[Training]:
    """Train every mechanism with several seeds, and yield trainings as they finish.

    Repeat i of every mechanism has the same training seed, and so the same initial weights and the
    same order of examples: differences are due to the mechanism.

    Args:
        mechanisms: names with genomes or users' own modules. Equal mechanisms are trained once and
            yielded once per name.
        purpose: training seeds for "explain" differ from those for all other purposes.
        known: earlier trainings. Those of this purpose and task that did not fail are yielded
            first, and are not run again.

    Raises:
        GenomeError: a mechanism does not exist at the task's width, heads or number of tokens.
    """
    place = task_fingerprint(task, data)
    recorded = {
        (training.key, training.evaluation.seed): training.evaluation
        for training in known
        if (training.purpose, training.task) == (purpose, place)
        and not is_retried(training.evaluation, retry_failed=True)
    }
    seeds_of = "explain" if purpose == "explain" else "study"
    resolved: dict[str, ResolvedGenome | UserModule] = {}
    labels: dict[str, list[tuple[str, str]]] = {}
    for name, mechanism in mechanisms:
        form = resolve_under(task, mechanism)
        resolved.setdefault(form.key, form)
        labels.setdefault(form.key, []).append((name, form.digest))
    seeds = {repeat: training_seed(seed, seeds_of, repeat) for repeat in repeats}
    trials = trials_of(resolved, task, seeds, purpose)

    def trainings(trial: Trial, evaluation: Evaluation) -> Iterator[Training]:
        key, repeat = trial.key, trial.repeat
        for name, digest in labels[key]:
            yield Training(purpose, place, task.name, key, name, repeat, evaluation, digest=digest)

    new = []
    for trial in trials:
        if evaluation := recorded.get((trial.key, trial.seed)):
            yield from trainings(trial, evaluation)
        else:
            new.append(trial)
    for trial, evaluation in run_trials(evaluator, new):
        yield from trainings(trial, evaluation)


def resolve_under(task: Task, mechanism: Mechanism) -> ResolvedGenome | UserModule:
    """Return a genome in normal form at a task's sizes; a user's own module is returned as it is.

    Raises:
        GenomeError: the mechanism does not exist at these sizes.
    """
    return mechanism if isinstance(mechanism, UserModule) else task.resolve(mechanism)


def trials_of(
    mechanisms: Mapping[str, ResolvedGenome | UserModule],
    task: Task,
    seeds: Mapping[int, int],
    purpose: Purpose,
) -> list[Trial]:
    """Return a trial of each mechanism with each seed.

    ``mechanisms`` are those that `resolve_under` returned, by ``Trial.key``. ``seeds`` are the
    training seeds by ``Trial.repeat``.
    """
    context, trained, work = cost_context(task), {}, {}
    for key, form in mechanisms.items():
        trained[key] = form if isinstance(form, UserModule) else form.genome
        work[key] = costs_under(form, context, ["macs"])["macs"]
    return [
        Trial(key, trained[key], seed, repeat, work[key], purpose=purpose)
        for repeat, seed in seeds.items()
        for key in mechanisms
    ]


def cost_context(
    task: Task, calibration: Mapping[str, Any] = {}, context: int | None = None
) -> CostContext:
    """Return the sizes and options at which costs of a task's mechanisms are computed.

    ``calibration`` has measured times of operations, to predict ``time_ms``; costs of decoding are
    computed at ``context`` tokens.
    """
    model = task.main
    return CostContext(model.sizes, model.qkv_bias, model.is_causal, calibration, context)


def costs_under(
    resolved: ResolvedGenome | UserModule, context: CostContext, names: Iterable[str] | None = None
) -> dict[str, float]:
    """Return costs as ``costs_of`` does; of a user's own module only those that can be measured."""
    if not isinstance(resolved, UserModule):
        return costs_of(resolved, context, names)
    costs = module_costs(resolved, context.sizes, context.is_causal)
    return {name: cost for name, cost in costs.items() if names is None or name in {*names}}


def why_not(mechanism: Mechanism, task: Task, time_limit: float | None = CHECK_SECONDS) -> str:
    """Return the reason why a mechanism cannot be trained under a task; empty if it can.

    ``time_limit`` is the longest duration in seconds of the check of a user's module.
    """
    try:
        if isinstance(mechanism, UserModule):
            model = task.main
            check_user_module(
                mechanism,
                model.sizes,
                is_causal=model.is_causal,
                is_padded=model.is_padded,
                time_limit=time_limit,
            )
            return ""
        plan = task.resolve(mechanism).plan
    except NasError as error:
        return str(error)
    if task.main.is_causal and plan.unsafe:
        return f"{', '.join(plan.unsafe)}: sees later tokens, in a causal task."
    return ""
