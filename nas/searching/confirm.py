"""Train the likely members of a run's front again, with fresh seeds that never feed the search.

A score that made a mechanism a member is the best of many and too high. Here a few are chosen once
and trained anew beside standard attention and a control, all with the same seeds, so that their
differences are paired. Each training is on the disk before it is told of; what is recorded is not
trained again, but for what a lost worker took along.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from nas.common.errors import ConfigError, RunError
from nas.costs import costs_of, default_costs
from nas.evaluation.trial import Trial, run_trials, training_seed
from nas.genome.mechanisms import mechanism
from nas.searching.loop import LIKELY, LOST
from nas.searching.setup import check_count, cost_context, run_cost_context
from nas.store import Confirmation, candidates, find_proposal, front, named_members
from nas.store.frozen import frozen_task, load_unchanged, thawed_task
from nas.store.results import scaled_hypervolume
from nas.tasks import load_task

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from nas.common.objectives import Objective
    from nas.genome import Genome
    from nas.searching.driver import MakeEvaluator
    from nas.store import Candidate, Document, Proposal, Run, RunWriter
    from nas.store.records import Part
    from nas.tasks import Data, Task

STANDARD: Final = "mha"
CONTROLS: Final = (STANDARD, "uniform")


@dataclass(frozen=True)
class Subject:
    """A mechanism to confirm: a member, or what members are compared with.

    Attributes:
        key: resolved at the sizes of the run's own task.
        name: of the mechanism, where it is a named one.
        costs: by name, at these sizes.
        candidate: what the search knows of it; None where it trained it not at all, or not well.
    """

    key: str
    digest: str
    name: str | None
    genome: Genome
    costs: Mapping[str, float]
    candidate: Candidate | None


@dataclass(frozen=True)
class Stage:
    """A task that all subjects are trained under, with its data."""

    part: Part
    task: Task
    data: Data

    @cached_property
    def document(self) -> Document:
        """Its name, and the fingerprint of task and data."""
        return frozen_task(self.task, self.data)


@dataclass(frozen=True)
class Plan:
    """What a confirmation comes to.

    Attributes:
        metric: the run's first, which is to be confirmed.
        seeds: trainings of each subject under each stage.
        todo: of each stage what the record lacks.
    """

    metric: Objective
    seeds: int
    subjects: tuple[Subject, ...]
    stages: tuple[Stage, ...]
    todo: tuple[tuple[Trial, ...], ...]


def plan_confirmation(
    run: Run,
    *,
    ids: Sequence[str] = (),
    members: int = 5,
    seeds: int = 5,
    long: str | None = None,
    is_tested: bool = False,
    data: str | None = None,
) -> Plan:
    """Choose whom to confirm and how; arguments as of ``nas.confirm``.

    Raises:
        NasError: there is nothing to confirm, or something given cannot be used.
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
    task = thawed_task(setup.task, data)
    subjects = _subjects(run, task, ids, members)
    stages = [Stage("search", task, load_unchanged(run.folder, setup.task, task))]
    if long is not None:
        stages.append(Stage("long", *_longer(long, task, metric)))
    if is_tested:
        last = stages[-1].task
        stages.append(Stage("test", last, last.load_test()))
    todo = tuple(tuple(_lacking(run, stage, subjects, seeds)) for stage in stages)
    return Plan(metric, seeds, subjects, tuple(stages), todo)


def confirm_run(
    writer: RunWriter, plan: Plan, make_evaluator: MakeEvaluator
) -> Generator[tuple[Subject, Confirmation], None, None]:
    """Train what the record lacks; each training is on the disk before it is given."""
    subjects = {subject.key: subject for subject in plan.subjects}
    for stage, trials in zip(plan.stages, plan.todo, strict=True):
        if not trials:
            continue
        task, place = stage.document, make_evaluator(stage.task, stage.data)
        try:
            for trial, evaluation in run_trials(place, trials):
                subject = subjects[trial.key]
                where = (stage.part, task.fingerprint, task.name, trial.key, subject.name)
                found = Confirmation(*where, trial.repeat, evaluation)
                writer.record_confirmation(found)
                yield subject, found
        finally:
            place.close()


def _subjects(run: Run, task: Task, ids: Sequence[str], members: int) -> tuple[Subject, ...]:
    """Members, then the controls; each mechanism once, whatever its names are."""
    known = {str(c.proposal.key): c for c in candidates(run)}
    setting = run_cost_context(run.setup, task)
    names = dict.fromkeys([o.name for o in run.setup.objectives if not o.is_metric])
    found: dict[str, Subject] = {}

    def add(genome: Genome, name: str | None) -> None:
        resolved = task.resolve(genome)
        key = resolved.key
        costs = costs_of(resolved, setting, names | dict.fromkeys(default_costs()))
        found.setdefault(
            key, Subject(key, resolved.digest, name, resolved.genome, costs, known.get(key))
        )

    for name in CONTROLS:
        add(mechanism(name).genome, name)
    controls = dict(found)
    chosen = [_known(run, one) for one in ids] or [
        c.proposal for c in _likely(run, known.values()) if c.proposal.key not in controls
    ][:members]
    for proposal in chosen:
        add(proposal.genome, proposal.name)
    return (*(s for key, s in found.items() if key not in controls), *controls.values())


def _known(run: Run, name: str) -> Proposal:
    """The proposal that an id names; one that is not legal cannot be trained."""
    found = find_proposal(run, name)
    if found.verdict == "rejected":
        raise RunError(
            f"{run.name}/{name}: was rejected ({found.note}), so it cannot be trained; expected "
            "a mechanism that was."
        )
    return found


def _likely(run: Run, known: Iterable[Candidate]) -> list[Candidate]:
    """Best, knee and cheapest, then what adds most to their hypervolume, then the likeliest.

    By probability alone the cheap would come first: dear ones resemble each other, so that each is
    less likely to be a member.
    """
    members = front(run)
    if not members:
        raise RunError(
            f"run {run.name!r} has no candidate yet whose training ended well, so there is "
            "nothing to confirm; let it run on."
        )
    others = [c for c in known if c.p is not None and c.p >= LIKELY]
    objectives = run.setup.objectives
    chosen = {c.proposal.key: c for c in named_members(objectives, members).values()}
    rest = [member for member in members if member.proposal.key not in chosen]

    def volume_with(member: Candidate) -> float:
        found = [c.objectives for c in (*chosen.values(), member)]
        return scaled_hypervolume(objectives, found)

    while rest:
        best = max(rest, key=volume_with)
        chosen[best.proposal.key] = best
        rest.remove(best)
    for other in sorted(others, key=lambda c: -(c.p or 0.0)):
        chosen.setdefault(other.proposal.key, other)
    return list(chosen.values())


def _longer(name: str, own: Task, metric: Objective) -> tuple[Task, Data]:
    """A longer task of the run's family, trained on the run's data.

    Raises:
        ConfigError: the task is of another family or does not measure the metric.
    """
    task = load_task(name)
    if task.kind != own.kind:
        raise ConfigError(
            f"long: task {name!r} is of the family {task.kind!r}; expected one of the run's "
            f"family, {own.kind!r}, so that {metric.name} means the same."
        )
    if own.data:
        task = load_task(name, data=own.data)
    data = task.load()
    names = [found.name for found in task.metrics(data)]
    if metric.name not in names:
        raise ConfigError(
            f"task {name!r} measures {', '.join(names)}; expected one that measures "
            f"{metric.name}, which is to be confirmed."
        )
    return task, data


def _lacking(run: Run, stage: Stage, subjects: Sequence[Subject], seeds: int) -> Iterator[Trial]:
    """The trainings of a stage that the record lacks, a seed after the other."""
    where = stage.part, stage.document.fingerprint
    done = {
        (found.key, found.repeat)
        for found in run.confirmations()
        if (found.part, found.task) == where and found.evaluation.reason != LOST
    }
    setting = cost_context(stage.task, {})
    resolved = {subject.key: stage.task.resolve(subject.genome) for subject in subjects}
    work = {key: costs_of(one, setting, ["macs"])["macs"] for key, one in resolved.items()}
    for repeat in range(seeds):
        seed = training_seed(run.setup.seed, "confirm", repeat)
        for key, one in resolved.items():
            if (key, repeat) not in done:
                yield Trial(key, one.genome, seed, repeat, work=work[key])
