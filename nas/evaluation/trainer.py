"""Train one candidate on a task and judge it on held-out data.

One thread on a CPU, no Python an example, no wait for a GPU inside an epoch. A trial gives the same
reports bit for bit wherever the same processor runs it; what goes wrong with a candidate becomes a
failed evaluation, never an exception. `train_guarded` is the last line between one candidate's
fault and the run: a fault of ours, a plug-in's, a library's, ``sys.exit`` in a primitive.
"""

from __future__ import annotations

import os
import platform
import time
import traceback
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from nas.common.errors import DeviceError
from nas.costs import Setting, costs_of
from nas.evaluation.capture_output import bounded_output
from nas.evaluation.trial import MAX_ERROR_CHARACTERS, Budget, Evaluation
from nas.genome import layers_with_mechanism
from nas.genome.canonical import canonicalise
from nas.tasks.seeds import derive_seed, seeded
from nas.training.allocator import keep_freed_memory
from nas.training.candidate import attention_weights, build_model
from nas.training.hardware import (
    Meter,
    check_device,
    hardware_name,
    is_out_of_memory,
    own_state,
    resolve_precision,
)
from nas.training.loop import TimeIsUp, Training
from nas.training.probe import Constant, Leak, probe
from nas.training.stepping import graphs_on
from nas.training.steps import Diverged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.evaluation.trial import Reason, Status, Trial
    from nas.genome import Genome
    from nas.tasks import Data, ModelTask, Task
    from nas.training.report import Report

TRACEBACK_LINES: Final = 6
OUTCOMES: Final[dict[type[Exception], Reason]] = {
    Diverged: "diverged",
    Constant: "constant",
    Leak: "leak",
    TimeIsUp: "time_limit",
}


class Train(Protocol):
    """A training function, `train_candidate` for one.

    Contract: gives an evaluation for every fault of the candidate, keeps `time_limit` seconds as
    well as it can, and gives the same reports for the same trial wherever it runs. DeviceError says
    that the device is missing, whoever the candidate is.
    """

    def __call__(
        self, trial: Trial, task: Task, data: Data, *, device: str, time_limit: float | None
    ) -> Evaluation:
        """Train one candidate on one device."""
        ...


@dataclass
class _Progress:
    """How far a training came, whatever ended it."""

    reports: list[Report] = field(default_factory=list)
    found: dict[str, Mapping[str, float]] = field(default_factory=dict)  # metrics by model
    status: Status = "ok"
    reason: Reason | None = None
    error: str | None = None
    executions: dict[str, None] = field(default_factory=dict)
    weights: bytes | None = None


def train_candidate(
    trial: Trial,
    task: Task,
    data: Data,
    *,
    device: str = "cpu",
    time_limit: float | None = None,
) -> Evaluation:
    """Train one candidate and judge it.

    Args:
        time_limit: seconds, looked at between steps; None for no limit.

    Returns:
        ``ok`` with the task's metrics, ``stopped`` at a gate of the task with what it has so far,
        or ``failed`` with reason and text.

    Raises:
        DeviceError: the device is not there, whoever the candidate is.
    """
    place = check_device(device)
    keep_freed_memory()
    load_optimizers()
    meter = Meter(place)
    progress = _Progress()
    try:
        with own_state() as changed, bounded_output():
            _train(trial, task, data, meter, time_limit, progress)
        if changed:
            raise RuntimeError(f"it left torch changed for the whole process: {', '.join(changed)}")
    except Exception as error:  # a candidate's fault is a result
        progress.status = "failed"
        progress.reason, progress.error = explain(error)
    return _evaluation(trial, task, data, meter, progress)


def train_guarded(
    train: Train,
    trial: Trial,
    task: Task,
    data: Data,
    device: str,
    time_limit: float | None,
) -> Evaluation:
    """Train one candidate; what it raises is its own failure.

    Raises:
        DeviceError: the device is missing, which is no candidate's fault.
    """
    start = time.monotonic()
    try:
        return train(trial, task, data, device=device, time_limit=time_limit)
    except DeviceError:
        raise
    except BaseException as error:  # a candidate never stops the run, sys.exit() included
        reason: Reason = "out_of_memory" if isinstance(error, MemoryError) else "error"
        text, seconds = f"{type(error).__name__}: {error}", time.monotonic() - start
        budget = budget_of(task, data)
        return Evaluation.failure(trial, budget, reason, text, worker_name(), seconds)


def calibrate_for(task: Task, device: str) -> Mapping[str, Any]:
    """The unit times behind predicted times, measured in this process as its trainings run.

    Raises:
        DeviceError: the device is not there.
    """
    from nas.costs.timing import calibrate

    model = task.main
    precision = resolve_precision(model.precision, check_device(device))
    with own_state():
        measured: Mapping[str, Any] = calibrate(
            model.sizes,
            batch=model.batch_size,
            precision=precision,
            device=device,
            is_causal=model.is_causal,
            qkv_bias=model.qkv_bias,
        )
    return measured


def budget_of(task: Task, data: Data, device: torch.device | None = None) -> Budget:
    """What a candidate is given; precision as the task names it, unless the device is known.

    Of several models, all their epochs as one.
    """
    models = task.models(data).values()
    precisions = dict.fromkeys(
        model.precision if device is None else resolve_precision(model.precision, device)
        for model, _ in models
    )
    sizes = [(model.epochs, model.epoch_size(own)) for model, own in models]
    epochs, examples = sizes[0] if len(sizes) == 1 else (1, sum(e * n for e, n in sizes))
    return Budget(epochs, examples, "/".join(precisions))


def worker_name() -> str:
    """Name this process among all machines of a run: host and process id."""
    return f"{platform.node()}:{os.getpid()}"


@cache
def load_optimizers() -> None:
    """The first optimiser makes torch import its compiler: seconds that no candidate shall pay."""
    torch.optim.AdamW([torch.zeros(1)])


def explain(error: BaseException) -> tuple[Reason, str]:
    """The reason of a failure and its text."""
    for kind, reason in OUTCOMES.items():
        if isinstance(error, kind):
            return reason, f"{error}."
    if is_out_of_memory(error):
        return "out_of_memory", f"{type(error).__name__}: {error}"
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    return "error", "\n".join(lines[-TRACEBACK_LINES:])


def _train(
    trial: Trial,
    task: Task,
    data: Data,
    meter: Meter,
    time_limit: float | None,
    progress: _Progress,
) -> None:
    """Train the candidate in each of the task's models, as far as its gates let it come."""
    models = task.models(data)
    # Before any training: what cannot be counted or does not exist somewhere is not worth its time.
    # Counts of the reference form by fvcore that differ from the closed formulas are an error.
    genomes = {name: _countable(trial.genome, own) for name, (own, _) in models.items()}
    for name, (own, own_data) in models.items():
        with seeded(derive_seed(trial.seed, "noise")):
            model = build_model(genomes[name], own, own_data, trial.seed)
            placement = layers_with_mechanism(trial.genome.placement, own.depth)
            block = model.attentions()[placement[0]]  # type: ignore[operator]
            probe(block, own.sizes, is_causal=own.is_causal)
            training = Training(
                model, own, own_data, meter, time_limit=time_limit, graphs=graphs_on(meter.device)
            )
            _follow(training, name, derive_seed(trial.seed, "order"), progress)
        if trial.keeps_weights and own is task.main:
            progress.weights = attention_weights(model)
        if missed := task.missed(progress.found):
            progress.status, progress.error = "stopped", missed
            return


def _countable(genome: Genome, task: ModelTask) -> Genome:
    """The normal form at a model's sizes, which shows that the mechanism exists there."""
    own = canonicalise(genome, task.sizes, is_causal=task.is_causal)
    setting = Setting(task.sizes, task.qkv_bias, task.is_causal, calibration={})
    costs_of(own, setting, ["elementwise"])
    return own


def _follow(training: Training, name: str, seed: int, progress: _Progress) -> None:
    """Train one model; its reports go on where those of the one before ended."""
    before = len(progress.reports)
    try:
        for report in training.reports(seed):
            progress.found[name] = report.metrics
            if name:
                named = {f"{name}.{metric}": value for metric, value in report.metrics.items()}
                report = replace(report, epoch=before + report.epoch, metrics=named)
            progress.reports.append(report)
    finally:
        progress.executions[training.execution] = None


def _evaluation(
    trial: Trial, task: Task, data: Data, meter: Meter, progress: _Progress
) -> Evaluation:
    is_failed = progress.status == "failed"
    error = progress.error
    return Evaluation(
        status=progress.status,
        reason=progress.reason,
        metrics={} if is_failed else task.summary(progress.found),
        reports=tuple(progress.reports),
        seed=trial.seed,
        budget=budget_of(task, data, meter.device),
        wall_seconds=meter.elapsed,
        core_seconds=meter.core_seconds,
        peak_memory_bytes=meter.peak_memory_bytes,
        worker=worker_name(),
        hardware=hardware_name(meter.device),
        execution="; ".join(progress.executions),
        error=error[-MAX_ERROR_CHARACTERS:] if error else None,
        weights=progress.weights if progress.status == "ok" else None,
    )
