"""Several seeds of one genome in one pass: each operation runs once for all of them.

Each seed keeps its own start, order of images, losses, curve and outcome; what one does moves no
other. On a processor each draws dropout and augmentation from its own stream, so that it trains as
it would alone, up to rounding. On a GPU, where a graph knows one generator, all draw from that of
the first seed: other numbers of the same distribution.

A group that is cut short (a process killed between two of its records, a lost worker) goes on as a
smaller one, which rounds otherwise.

What can be gained is the fixed cost of operations, so this is for small batches, and for devices
that wait for Python. Whether it is faster is measured: together_or_in_turn.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from nas.evaluation import trainer
from nas.evaluation.guard import MAX_ERROR_CHARACTERS, worker_name
from nas.evaluation.record import Evaluation, Job
from nas.tasks.seeds import derive_seed, seeded
from nas.tasks.task import budget_text
from nas.training.allocator import keep_freed_memory
from nas.training.curve import Epoch
from nas.training.hardware import Meter, check_device, one_thread, resolve_precision
from nas.training.part import part_of
from nas.training.session import TimeIsUp, judged_at_once
from nas.training.snapshot import reason_of
from nas.training.stacked import Noise, Stacked
from nas.training.stepping import Pace, graphs_on, make_steps
from nas.training.work import Diverged
from nas.training.work_together import JudgeTogether, learning

if TYPE_CHECKING:
    from torch import Tensor

    from nas.tasks import ImageData, Task
    from nas.tasks.backbone import Backbone
    from nas.training.hardware import Used
    from nas.training.stepping import Steps


TOGETHER: Final = "seeds together"


@dataclass
class Outcome:
    """What became of one seed, as far as it came; ``error`` is why it went no further."""

    curve: list[Epoch] = field(default_factory=list)
    accuracy: float = 0.0
    error: Exception | None = None


def train_together(
    jobs: Sequence[Job],
    task: Task,
    data: ImageData,
    *,
    device: str = "cpu",
    time_limit: float | None = None,
) -> list[Evaluation]:
    """Train jobs that differ in their seeds alone, in one pass, and judge each.

    What the pass cannot do and one training may (less memory, an operation without a rule for
    vmap) is done by trainings in turn; their ``execution`` says why.

    Args:
        time_limit: seconds for each; together they have the sum.

    Returns:
        One evaluation a job, as from ``train_candidate``; time is shared out evenly.

    Raises:
        DeviceError: the device is not there.
    """
    pairs = train_models_together(jobs, task, data, device=device, time_limit=time_limit)
    return [evaluation for evaluation, _ in pairs]


def train_models_together(
    jobs: Sequence[Job],
    task: Task,
    data: ImageData,
    *,
    device: str = "cpu",
    time_limit: float | None = None,
) -> list[tuple[Evaluation, Backbone | None]]:
    """As ``train_together``, each with the trained model, or None where training failed."""
    assert len({job.key for job in jobs}) == 1, "these are jobs of several genomes"
    place = check_device(device)
    keep_freed_memory()
    trainer.load_optimizers()
    meter = Meter(place)
    limit = None if time_limit is None else time_limit * len(jobs)
    group = Group(task, place, limit, meter, [Outcome() for _ in jobs])
    try:
        with one_thread(), seeded(derive_seed(jobs[0].seed, "noise")):
            models, objectives = _judged(group, jobs, data)
        records = _records(jobs, group, objectives, len(data.train))
        return [(r, m if r.is_ok else None) for r, m in zip(records, models, strict=True)]
    except Exception as error:  # each shows its own fault alone, if it has any
        why = reason_of(error)
    # Not in the handler, whose traceback holds all that the pass had in memory.
    lost = meter.read()
    left = None if time_limit is None else max(0.0, time_limit - lost.wall_seconds / len(jobs))
    limits: Any = {"device": device, "time_limit": left}
    alone = [trainer.train_model(job, task, data, **limits) for job in jobs]
    return [(_after(found, lost, len(jobs), why), model) for found, model in alone]


def _judged(
    group: Group, jobs: Sequence[Job], data: ImageData
) -> tuple[Sequence[Backbone | None], list[dict[str, float]]]:
    """Train and judge all: models and objectives; nothing of either if the time was up."""
    try:
        costs = trainer.costs_of(jobs[0].genome, group.task)
        models = group.fit(jobs, data)
        found = [
            {"accuracy": outcome.accuracy} | costs | trainer.latency_of(model, group.task)
            for model, outcome in zip(models, group.outcomes, strict=True)
        ]
    except TimeIsUp as error:
        for outcome in group.outcomes:
            outcome.error = outcome.error or error
        return [None] * len(jobs), [{} for _ in jobs]
    return models, found


@dataclass
class Group:
    """Several seeds' training under way: as ``session.Session``, which is of one."""

    task: Task
    device: torch.device
    time_limit: float | None
    meter: Meter
    outcomes: list[Outcome]
    execution: str = ""

    def __post_init__(self) -> None:
        self.precision = resolve_precision(self.task.precision, self.device)

    def fit(self, jobs: Sequence[Job], data: ImageData) -> list[Backbone]:
        """Train all; gives the models. What became of each is in ``outcomes``."""
        task, device = self.task, self.device
        models, stacked = stack(jobs, task, data, device)
        held_out = part_of(data, "validation", task.patch, device, precision=self.precision)
        images, most = len(data.train), len(held_out)
        learn = learning(stacked, task, data, self.precision, device)
        judge = JudgeTogether(stacked, held_out, self.precision, device)
        training = make_steps(learn, task.batch_size, graphs_on(device))
        judging = make_steps(judge, max(1, judged_at_once(device) // len(jobs)), graphs_on(device))
        orders = [torch.Generator().manual_seed(derive_seed(job.seed, "order")) for job in jobs]
        for epoch in range(1, task.epochs + 1):
            order = [torch.randperm(images, generator=generator) for generator in orders]
            self._repeat(training, torch.stack(order, dim=1))
            self.execution = f"{training.execution}, {len(jobs)} {TOGETHER}"
            count = most if epoch == task.epochs else min(task.curve_images, most)
            self._repeat(judging, torch.arange(count))
            self._note(epoch, learn.means(images), judge.accuracies(count))
            if all(outcome.error for outcome in self.outcomes):
                break
        stacked.return_to(models)
        return models

    def _repeat(self, steps: Steps, chosen: Tensor) -> None:
        steps.work.model.train(steps.work.is_training)
        pace = Pace(self.device)
        for batch in torch.split(chosen.to(self.device), steps.size):
            if self.time_limit is not None and self.meter.elapsed > self.time_limit:
                raise TimeIsUp(
                    f"{len(self.outcomes)} seeds together: stopped after their time limit of "
                    f"{self.time_limit:g} s"
                )
            steps(batch)
            pace()

    def _note(
        self, epoch: int, losses: Sequence[float], accuracies: Sequence[float | None]
    ) -> None:
        """An epoch's results; a seed that is no longer finite has failed, and it alone."""
        for outcome, loss, accuracy in zip(self.outcomes, losses, accuracies, strict=True):
            if outcome.error is not None:
                continue
            if not math.isfinite(loss):
                outcome.error = Diverged(f"the training loss is {loss}")
            elif accuracy is None:
                outcome.error = Diverged("outputs for validation images are not finite")
            else:
                outcome.curve.append(Epoch(epoch, loss, accuracy))
                outcome.accuracy = accuracy


def stack(
    jobs: Sequence[Job], task: Task, data: ImageData, device: torch.device
) -> tuple[list[Backbone], Stacked]:
    """Each job's model as it starts alone, and all of them as one."""
    models, noises = [], []
    for job in jobs:
        with seeded(derive_seed(job.seed, "noise")):
            models.append(trainer.build_backbone(job.genome, task, data, job.seed).to(device))
            noises.append(Noise(torch.get_rng_state()))
    return models, Stacked(models, noises if device.type == "cpu" else [])


def _after(evaluation: Evaluation, lost: Used, count: int, why: str) -> Evaluation:
    """A training alone, with its share of the time that a pass took which failed, and the why."""
    return replace(
        evaluation,
        wall_seconds=evaluation.wall_seconds + lost.wall_seconds / count,
        core_seconds=evaluation.core_seconds + lost.core_seconds / count,
        execution=f"{evaluation.execution}, alone: {count} seeds together failed ({why})",
    )


def _records(
    jobs: Sequence[Job], group: Group, objectives: Sequence[dict[str, float]], images: int
) -> list[Evaluation]:
    """Each seed's evaluation, with an even share of the time."""
    used, count = group.meter.read(), len(jobs)
    records = []
    for job, outcome, own in zip(jobs, group.outcomes, objectives, strict=True):
        reason, text = trainer.explain(outcome.error) if outcome.error else (None, None)
        records.append(
            Evaluation(
                status="failed" if reason else "ok",
                reason=reason,
                objectives={} if reason else own,
                curve=tuple(outcome.curve),
                seed=job.seed,
                budget=f"{budget_text(group.task.epochs, images)}, {group.precision}",
                wall_seconds=used.wall_seconds / count,
                core_seconds=used.core_seconds / count,
                peak_memory_bytes=used.peak_memory_bytes,
                worker=worker_name(),
                error=text[-MAX_ERROR_CHARACTERS:] if text else None,
                execution=group.execution,
            )
        )
    return records
