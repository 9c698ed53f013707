"""Train mechanisms under a task, each with several seeds, without a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

from nas.common.errors import ConfigError, NasError
from nas.common.objectives import Metric, Objective
from nas.common.rates import CHOOSING_SEEDS, Scores, open_rates
from nas.compiler import ResolvedGenome, rest_attention
from nas.costs import CostContext, costs_of
from nas.evaluation.trial import (
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
    evaluator: Callable[[], Evaluator],
    *,
    repeats: Iterable[int],
    seed: int = 0,
    purpose: Purpose = "evaluate",
    known: Iterable[Training] = (),
    keys: Mapping[str, str] = {},
    rates: Mapping[str, Iterable[float]] | None = None,
) -> Iterator[Training]:
    """Train every mechanism with several seeds, and yield trainings as they finish.

    Repeat i of every mechanism, at every learning rate, has the same training seed, and so the same
    initial weights and the same order of examples: differences are due to mechanism and rate.
    GenomeError is raised if a mechanism does not exist at the task's width, heads or tokens.

    Equal ``mechanisms`` are trained once and yielded once per name. ``evaluator`` is not called if
    all trainings are known: of the earlier trainings ``known``, those of this purpose and task that
    did not fail are yielded first, and are not run again; of "confirm" also those that failed.
    Training seeds for "explain" and "confirm" differ from those for other purposes. ``keys`` are
    values of ``Training.key`` by name, by default the digest at the task's sizes, and ``rates`` the
    learning rates at which each mechanism is trained, by name, by default the task's own.
    """
    variants = {None: task} if rates is None else task.at_rates()
    places = {rate: task_fingerprint(variant, data) for rate, variant in variants.items()}
    recorded = {
        (training.task, training.key, training.evaluation.seed): training
        for training in known
        if training.purpose == purpose
        and not is_retried(training.evaluation, retry_failed=purpose != "confirm")
    }
    seeds_of = purpose if purpose in ("explain", "confirm") else "study"
    context, trained, work = cost_context(task), {}, {}
    labels: dict[tuple[str, float | None], list[tuple[str, str]]] = {}
    for name, mechanism in mechanisms:
        form = resolve_under(task, mechanism)
        key = keys.get(name, form.key)
        trained[key] = form if isinstance(form, UserModule) else form.genome
        work[key] = costs_under(form, context, ["macs"])["macs"]
        for rate in [None] if rates is None else rates[name]:
            labels.setdefault((key, rate), []).append((name, form.digest))

    def named(training: Training, rate: float | None) -> Iterator[Training]:
        for name, digest in labels[training.key, rate]:
            yield replace(training, name=name, digest=digest, learning_rate=rate)

    new = []
    for repeat in repeats:
        number = training_seed(seed, seeds_of, repeat)
        for key, rate in labels:
            if training := recorded.get((places[rate], key, number)):
                yield from named(training, rate)
            else:
                planned = key, trained[key], number, repeat, work[key]
                new.append(Trial(*planned, purpose=purpose, learning_rate=rate))
    for trial, evaluation in run_trials(evaluator(), new) if new else ():
        rate = trial.learning_rate
        place = purpose, places[rate], task.name, trial.key
        yield from named(Training(*place, "", trial.repeat, evaluation), rate)


def tries_rates(rates: bool | None, tasks: Iterable[Task], seeds: int, is_tested: bool) -> bool:
    """Return whether the tasks' learning rates are tried.

    By default they are if all tasks offer rates, and two seeds or more permit a claim. Rates are
    chosen on validation examples, so they are not tried for an evaluation on test sets.
    """
    if rates and is_tested:
        raise ConfigError(
            "rates and test: learning rates are chosen and compared on validation examples; "
            "expected one of the two options."
        )
    if rates is None:
        return seeds > 1 and not is_tested and all(task.main.learning_rates for task in tasks)
    return rates


def study_at_rates(
    mechanisms: Sequence[tuple[str, Mechanism]],
    task: Task,
    data: Data,
    evaluator: Callable[[], Evaluator],
    *,
    repeats: Sequence[int],
    metric: Metric | Objective,
    **options: Any,
) -> Iterator[Training]:
    """Train as `study` does at the task's learning rates: first at all, then at the open ones.

    The first ``CHOOSING_SEEDS`` repeats choose each mechanism's rate, and close rates at which the
    metric is clearly worse (``nas.common.rates``). The other repeats give the values to report.
    Names are unique. TaskError is raised if the task offers no learning rates.
    """
    names, rates = [name for name, _ in mechanisms], task.at_rates()
    scores: Scores = {name: {rate: {} for rate in rates} for name in names}
    train = partial(study, mechanisms, task, data, evaluator, **options)
    choosing, reported = repeats[:CHOOSING_SEEDS], repeats[CHOOSING_SEEDS:]
    for training in train(repeats=choosing, rates=dict.fromkeys(names, rates)):
        value = training.evaluation.value(metric.name)
        scores[training.name][training.learning_rate or 0.0][training.repeat] = value
        yield training
    yield from train(repeats=reported, rates=open_rates(scores, metric.direction))


@contextmanager
def on_demand(make_evaluator: Callable[[], Evaluator]) -> Iterator[Callable[[], Evaluator]]:
    """Yield a function that makes the evaluator at its first call; close it in the end."""
    with ExitStack() as stack:
        yield cache(lambda: stack.enter_context(closing(make_evaluator())))


def resolve_under(task: Task, mechanism: Mechanism) -> ResolvedGenome | UserModule:
    """Return a user's module, or a normal form at a task's sizes; raise GenomeError if none."""
    return mechanism if isinstance(mechanism, UserModule) else task.resolve(mechanism)


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
    """Return why a mechanism cannot be trained under a task, or ""; ``time_limit`` in seconds."""
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
        resolved = task.resolve(mechanism)
        unsafe = (*resolved.plan.unsafe, *rest_attention(resolved).plan.unsafe)
    except NasError as error:
        return str(error)
    if task.main.is_causal and unsafe:
        return f"{', '.join(unsafe)}: sees later tokens, in a causal task."
    return ""
