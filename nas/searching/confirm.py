"""Confirm mechanisms of a run's front: train them again with seeds that the search never uses.

The score that put a mechanism into the front is the best of many scores, and therefore biased
upwards. The task's reference, ``uniform`` (the mean of all tokens) and a mechanism or module that
the user names are trained with the same seeds, so that mechanisms are compared seed by seed.
Recorded trainings are not repeated, unless they failed because the worker process was lost. If
learning rates are tried, further seeds choose each mechanism's rate (``nas.common.rates``).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from nas.common.errors import ConfigError, RunError
from nas.common.objectives import Objective, check_count
from nas.common.pareto import scaled_hypervolume
from nas.common.rates import CHOOSING_SEEDS
from nas.costs import costs_of, default_costs
from nas.evaluation.study import (
    costs_under,
    on_demand,
    resolve_under,
    study,
    study_at_rates,
    tries_rates,
    why_not,
)
from nas.evaluation.trial import NOT_RECORDED, Stage, Training, task_fingerprint
from nas.genome import Genome
from nas.genome.mechanisms import mechanism
from nas.searching.loop import LIKELY
from nas.searching.setup import MakeEvaluator, check_measures, longer_task, run_cost_context
from nas.store import Candidate, Run, RunWriter, find_proposal, named_members
from nas.store.frozen import load_frozen_task, load_unchanged
from nas.store.sources import Source
from nas.tasks import Data, Task
from nas.training.user_module import Mechanism


@dataclass(frozen=True)
class ConfirmationStage:
    """A task of a confirmation; ``part``: see ``Training.stage``, ``is_tuned``: rates are tried."""

    part: Stage
    task: Task
    data: Data
    is_tuned: bool

    @cached_property
    def rates(self) -> Mapping[str, float | None]:
        """The learning rate by ``Training.task``; None for the task's own if none are tried."""
        variants = self.task.at_rates() if self.is_tuned else {None: self.task}
        return {task_fingerprint(task, self.data): rate for rate, task in variants.items()}


@dataclass(frozen=True)
class ComparedMechanism:
    """A mechanism that is trained in a confirmation.

    ``name`` is that of a candidate, or empty, or the label of what the user compares with.
    ``key`` and ``costs`` are those under the run's task. ``candidate`` is None if the search did
    not propose the mechanism.
    """

    name: str
    key: str
    digest: str
    mechanism: Mechanism
    costs: Mapping[str, float]
    candidate: Candidate | None = None


@dataclass(frozen=True)
class ConfirmationPlan:
    """The trainings of a confirmation.

    Attributes:
        metric: the metric to confirm, which is the first metric among the run's objectives.
        seeds: number of trainings of each mechanism in each stage, without those that only choose
            a learning rate; ``repeats`` is their number with those.
        trained: the selected mechanisms, the controls, then the user's ``against``, by key.
        against: the mechanism with which all others are compared, by default the task's reference.
    """

    metric: Objective
    seeds: int
    trained: Mapping[str, ComparedMechanism]
    stages: tuple[ConfirmationStage, ...]
    against: ComparedMechanism
    repeats: int

    @property
    def total(self) -> int:
        """The largest number of trainings, which closed learning rates reduce."""
        return len(self.trained) * self.repeats * sum(len(stage.rates) for stage in self.stages)


def plan_confirmation(
    run: Run,
    *,
    ids: Sequence[str] = (),
    members: int = 5,
    seeds: int = 5,
    long: str | None = None,
    is_tested: bool = False,
    data: str | None = None,
    against: Source | None = None,
    rates: bool | None = None,
    time_limit: float | None = None,
) -> ConfirmationPlan:
    """Select mechanisms of a run to train again; raise NasError if there is nothing to confirm.

    See ``nas.confirm`` for the arguments, and `check_user_module` for ``time_limit``.
    """
    check_count("seeds", seeds)
    check_count("members", members)
    setup = run.setup
    metric = next((o for o in setup.objectives if o.is_metric), None)
    if metric is None:
        raise RunError(
            f"run {run.name!r} has no metric among its objectives, so there is no score to "
            "confirm; `nas evaluate` trains its members."
        )
    task = load_frozen_task(setup.front_task, data)
    chosen = _select(run, task, ids, members)
    parts: list[tuple[Stage, Task, Data]] = [
        ("search", task, load_unchanged(run.folder, setup.front_task, task))
    ]
    if long is not None:
        longer = longer_task(long, task, "long")
        data_of_longer = longer.load()
        check_measures(longer, data_of_longer, metric.name)
        parts.append(("long", longer, data_of_longer))
    if is_tested:
        _, last, _ = parts[-1]
        parts.append(("test", last, last.load_test()))
    is_tuned = tries_rates(rates, [task for _, task, _ in parts], seeds, is_tested)
    stages = tuple(ConfirmationStage(*part, is_tuned=is_tuned) for part in parts)
    if against is None:
        reference = next(m for m in chosen.values() if m.name == task.main.reference)
    else:
        compared = _compared(run, against, stages, time_limit)
        reference = chosen.setdefault(compared.key, compared)
    repeats = seeds + CHOOSING_SEEDS if is_tuned else seeds
    return ConfirmationPlan(metric, seeds, chosen, stages, reference, repeats)


def confirm_run(
    writer: RunWriter, plan: ConfirmationPlan, make_evaluator: MakeEvaluator
) -> Generator[tuple[ConfirmationStage, ComparedMechanism, Training], None, None]:
    """Train as planned, and yield each training of the plan, a new one after it is recorded."""
    for stage in plan.stages:
        with on_demand(partial(make_evaluator, stage.task, stage.data)) as evaluator:
            train = partial(study_at_rates, metric=plan.metric) if stage.is_tuned else study
            for training in train(
                [(key, each.mechanism) for key, each in plan.trained.items()],
                stage.task,
                stage.data,
                evaluator,
                repeats=range(plan.repeats),
                seed=writer.run.setup.config.seed,
                purpose="confirm",
                known=writer.run.trainings("confirm"),
                keys={key: key for key in plan.trained},
            ):
                mechanism = plan.trained[training.key]
                if training.recorded == NOT_RECORDED:
                    named = replace(training, name=mechanism.name, stage=stage.part)
                    writer.record_training(named, None)
                yield stage, mechanism, training


def _select(run: Run, task: Task, ids: Sequence[str], members: int) -> dict[str, ComparedMechanism]:
    """Return the selected mechanisms of the run, then the controls, with costs under ``task``."""
    searched = load_frozen_task(run.setup.task)  # its sizes determine keys
    known = {c.key: c for c in run.candidates() if c.is_ok}
    context, names = run_cost_context(run.setup, task), _cost_names(run)
    chosen: dict[str, ComparedMechanism] = {}

    def add(genome: Genome, name: str | None) -> None:
        resolved = searched.resolve(genome)
        costs = costs_of(context.resolve(resolved.genome), context, names)
        candidate = known.get(resolved.key)
        trained = resolved if candidate is None else candidate.proposal
        fields = resolved.key, trained.digest, trained.genome, costs, candidate
        chosen.setdefault(resolved.key, ComparedMechanism(name or "", *fields))

    for name in task.main.controls:
        add(mechanism(name).genome, name)
    controls = tuple(chosen)
    if ids:
        proposals = [find_proposal(run, name) for name in ids]
    else:
        likely = [c for c in _likely_members(run, known.values()) if c.key not in controls]
        proposals = [candidate.proposal for candidate in likely[:members]]
    for proposal in proposals:
        if proposal.verdict == "rejected":
            raise RunError(
                f"{run.name}/{proposal.digest}: was rejected ({proposal.note}), so it cannot be "
                "trained; expected a mechanism that was."
            )
        add(proposal.genome, proposal.name)
    return {key: chosen[key] for key in (*(k for k in chosen if k not in controls), *controls)}


def _cost_names(run: Run) -> dict[str, None]:
    objectives = [o.name for o in run.setup.objectives if not o.is_metric]
    return dict.fromkeys([*objectives, *default_costs()])


def _compared(
    run: Run, source: Source, stages: Sequence[ConfirmationStage], time_limit: float | None
) -> ComparedMechanism:
    for stage in stages:
        for model, _ in stage.task.models(stage.data).values():
            if reason := why_not(source.mechanism, model, time_limit):
                raise ConfigError(f"against, under task {stage.task.name}: {reason}")
    task = stages[0].task
    form, context = resolve_under(task, source.mechanism), run_cost_context(run.setup, task)
    costs = costs_under(form, context, _cost_names(run))
    resolved = resolve_under(load_frozen_task(run.setup.task), source.mechanism)
    return ComparedMechanism(source.label, resolved.key, resolved.digest, source.mechanism, costs)


def _likely_members(run: Run, known: Iterable[Candidate]) -> list[Candidate]:
    """Return mechanisms that are likely to be in the front, most important first.

    The mechanisms named best, knee and cheapest come first. The other members of the front follow;
    each adds the largest hypervolume to those before it. All other mechanisms are sorted by their
    probability to be in the front.
    """
    members = run.front()
    if not members:
        raise RunError(
            f"run {run.name!r} has no candidate yet whose training ended well and that is within "
            "its limits, so there is nothing to confirm; let it run on."
        )
    objectives = run.setup.objectives
    chosen = {c.key: c for c in named_members(objectives, members).values()}
    rest = [member for member in members if member.key not in chosen]

    def volume_with(member: Candidate) -> float:
        rows = [c.objectives for c in (*chosen.values(), member)]
        return scaled_hypervolume(objectives, rows)

    while rest:
        best = max(rest, key=volume_with)
        chosen[best.key] = best
        rest.remove(best)
    others = [c for c in known if (c.p or 0.0) >= LIKELY]
    for other in sorted(others, key=lambda c: -(c.p or 0.0)):
        chosen.setdefault(other.key, other)
    return list(chosen.values())
