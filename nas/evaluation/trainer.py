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
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from nas.compiler import build_attention, make_plan
from nas.costs import Setting, costs_of
from nas.errors import DeviceError
from nas.evaluation.trial import MAX_ERROR_CHARACTERS, Budget, Evaluation
from nas.genome import layers_with_mechanism
from nas.mechanisms import mechanism
from nas.tasks.seeds import derive_seed, seeded
from nas.training.allocator import keep_freed_memory
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

    from torch import nn

    from nas.evaluation.trial import Reason, Status, Trial
    from nas.genome import Genome
    from nas.tasks import Data, Task
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
    status: Status = "ok"
    reason: Reason | None = None
    error: str | None = None
    execution: str = ""
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
        ``ok`` with the task's metrics, ``stopped`` by one of the trial's own rules, or ``failed``
        with reason and text.

    Raises:
        DeviceError: the device is not there, whoever the candidate is.
    """
    place = check_device(device)
    keep_freed_memory()
    load_optimizers()
    meter = Meter(place)
    progress = _Progress()
    try:
        with own_state(), seeded(derive_seed(trial.seed, "noise")):
            _train(trial, task, data, meter, time_limit, progress)
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
    *,
    passes: tuple[type[BaseException], ...] = (DeviceError, KeyboardInterrupt),
) -> Evaluation:
    """Train one candidate; what it raises is its own failure.

    Args:
        passes: what is no candidate's fault, and raised: a device that is missing and, in a
            person's own process, their wish to stop.
    """
    start = time.monotonic()
    try:
        return train(trial, task, data, device=device, time_limit=time_limit)
    except passes:
        raise
    except BaseException as error:  # a candidate never stops the run, sys.exit() included
        reason: Reason = "out_of_memory" if isinstance(error, MemoryError) else "error"
        text, seconds = f"{type(error).__name__}: {error}", time.monotonic() - start
        budget = budget_of(trial, task, data)
        return Evaluation.failure(trial, budget, reason, text, worker_name(), seconds)


def calibrate_for(task: Task, device: str) -> Mapping[str, Any]:
    """The unit times behind ``time_ms``, measured in this process as its trainings run.

    Raises:
        DeviceError: the device is not there.
    """
    from nas.timing import calibrate

    precision = resolve_precision(task.precision, check_device(device))
    with own_state():
        measured: Mapping[str, Any] = calibrate(
            task.sizes,
            batch=task.batch_size,
            precision=precision,
            device=device,
            is_causal=task.is_causal,
            qkv_bias=task.qkv_bias,
        )
    return measured


def budget_of(trial: Trial, task: Task, data: Data, precision: str | None = None) -> Budget:
    """What a trial is given; the precision as the task names it, unless it is known."""
    epochs = min(trial.epochs or task.epochs, task.epochs)
    return Budget(epochs, task.epoch_size(data), precision or task.precision)


def worker_name() -> str:
    """Name this process among all machines of a run: host and process id."""
    return f"{platform.node()}:{os.getpid()}"


@cache
def load_optimizers() -> None:
    """The first optimiser makes torch import its compiler: seconds that no candidate shall pay."""
    torch.optim.AdamW([torch.zeros(1)])


def build_model(genome: Genome, task: Task, data: Data, seed: int) -> nn.Module:
    """A task's model, untrained, with the mechanism where its placement says.

    Raises:
        GenomeError: the mechanism does not exist at the task's sizes.
    """
    own = layers_with_mechanism(genome.placement, task.depth)
    plan, standard = make_plan(genome), make_plan(mechanism("mha").genome)

    def attention(layer: int) -> nn.Module:
        chosen = plan if layer in own else standard
        return build_attention(chosen, task.width, task.heads, qkv_bias=task.qkv_bias)

    return task.build_model(data, attention, seed)


def attention_weights(model: nn.Module) -> bytes:
    """The weights of all attention layers, as safetensors: ``layers.<i>.<name in the block>``."""
    from safetensors.torch import save

    found = {
        f"layers.{index}.{name}": weight.detach().cpu().clone().contiguous()
        for index, block in enumerate(model.attentions())  # type: ignore[operator]
        for name, weight in block.state_dict().items()
    }
    return bytes(save(found))


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
    # Before the training: what cannot be counted, or says nothing, is not worth its time. Counts of
    # the reference form by fvcore that differ from the closed formulas are an error.
    setting = Setting(task.sizes, task.qkv_bias, task.is_causal, calibration={})
    costs_of(trial.genome, setting, ["elementwise"])
    model = build_model(trial.genome, task, data, trial.seed)
    own = layers_with_mechanism(trial.genome.placement, task.depth)
    probe(model.attentions()[own[0]], task.sizes, is_causal=task.is_causal)  # type: ignore[operator]
    graphs = graphs_on(meter.device)
    training = Training(model, task, data, meter, time_limit=time_limit, graphs=graphs)
    epochs = budget_of(trial, task, data).epochs
    try:
        for report in training.reports(epochs, derive_seed(trial.seed, "order")):
            progress.reports.append(report)
            if any(stop.applies(report) for stop in trial.stops):
                progress.status = "stopped"
                return
    finally:
        progress.execution = training.execution
    if trial.keeps_weights:
        progress.weights = attention_weights(model)


def _evaluation(
    trial: Trial, task: Task, data: Data, meter: Meter, progress: _Progress
) -> Evaluation:
    is_failed = progress.status == "failed"
    error = progress.error
    return Evaluation(
        status=progress.status,
        reason=progress.reason,
        metrics={} if is_failed else progress.reports[-1].metrics,
        reports=tuple(progress.reports),
        seed=trial.seed,
        budget=budget_of(trial, task, data, resolve_precision(task.precision, meter.device)),
        wall_seconds=meter.elapsed,
        core_seconds=meter.core_seconds,
        peak_memory_bytes=meter.peak_memory_bytes,
        worker=worker_name(),
        hardware=hardware_name(meter.device),
        execution=progress.execution,
        error=error[-MAX_ERROR_CHARACTERS:] if error else None,
        weights=None if is_failed else progress.weights,
    )
