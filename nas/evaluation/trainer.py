"""Train one candidate on a task and evaluate it on held-out data.

A training uses one thread on a CPU, runs no Python code per example, and does not wait for a GPU
inside an epoch. The same trial on the same type of processor gives the same reports bit for bit.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch import nn

from nas.common.errors import DeviceError
from nas.common.system import record_interrupts
from nas.common.text import first_line
from nas.compiler import ResolvedGenome
from nas.costs import costs_of
from nas.evaluation.study import cost_context
from nas.evaluation.trial import (
    MAX_ERROR_CHARACTERS,
    Budget,
    Evaluation,
    Incident,
    Reason,
    Status,
    Trial,
    log,
)
from nas.tasks import Data, ModelTask, Task
from nas.tasks.layers import Transformer, derive_seed, seeded
from nas.training import Report
from nas.training.candidate import attention_weights, build_model, layers_of
from nas.training.dependence import Constant, LastTokens, Leak, Stack, probe, warn_of_tolerance
from nas.training.hardware import (
    Meter,
    hardware_name,
    is_out_of_memory,
    keep_freed_memory,
    resolve_precision,
    training_settings,
)
from nas.training.loop import TimeIsUp, TrainingLoop
from nas.training.steps import Diverged, graphs_on
from nas.training.user_module import UserModule
from nas.training.user_process import ProcessEnded, call_in_process

GRACE: Final = 25.0  # seconds beyond the time limit after which the process of a module is ended
TRACEBACK_LINES: Final = 6  # last lines of a candidate's traceback, which are recorded
OUTCOMES: Final[dict[type[Exception], Reason]] = {
    Diverged: "diverged",
    Constant: "constant",
    Leak: "leak",
    TimeIsUp: "time_limit",
}

Train: TypeAlias = "Callable[..., Evaluation]"
"""A training function with the arguments of `train_candidate`. It returns a failed evaluation for
every error of the candidate, and the same reports for the same trial."""


@dataclass
class _Progress:
    """What the evaluation of a training will contain."""

    reports: list[Report] = field(default_factory=list)
    metrics: dict[str, Mapping[str, float]] = field(default_factory=dict)  # by model
    status: Status = "ok"
    reason: Reason | None = None
    error: str | None = None
    executions: dict[str, None] = field(default_factory=dict)
    weights: bytes | None = None

    def add(self, name: str, report: Report) -> None:
        """Add the report of one epoch of a model; epochs are numbered on from model to model."""
        self.metrics[name] = report.metrics
        if name:
            report = replace(report, metrics={f"{name}.{m}": v for m, v in report.metrics.items()})
        self.reports.append(replace(report, epoch=len(self.reports) + 1))


def train_candidate(
    trial: Trial, task: Task, data: Data, *, device: str = "cpu", time_limit: float | None = None
) -> Evaluation:
    """Train one candidate and evaluate it; an ``Exception`` becomes a failed evaluation.

    ``device`` is "cpu" or "cuda". ``time_limit``, in seconds, is checked between steps.
    """
    torch_device = torch.device(device)
    keep_freed_memory()
    meter = Meter(torch_device)
    progress = _Progress()
    try:
        with training_settings(), redirect_stdout(sys.stderr):
            _train(trial, task, data, meter, time_limit, progress)
    except Exception as error:
        progress.status = "failed"
        progress.reason, progress.error = _explain(error)
    is_failed = progress.status == "failed"
    return Evaluation(
        status=progress.status,
        reason=progress.reason,
        metrics={} if is_failed else task.summary(progress.metrics),
        reports=tuple(progress.reports),
        seed=trial.seed,
        budget=budget_of(task, data, torch_device),
        wall_seconds=meter.elapsed,
        core_seconds=meter.core_seconds,
        peak_memory_bytes=meter.peak_memory_bytes,
        worker=worker_name(),
        hardware=hardware_name(torch_device),
        execution="; ".join(progress.executions),
        error=progress.error[-MAX_ERROR_CHARACTERS:] if progress.error else None,
        weights=progress.weights if progress.status == "ok" else None,
    )


def train_guarded(
    train: Train, trial: Trial, task: Task, data: Data, device: str, time_limit: float | None
) -> Evaluation:
    """Call a training function, in a new process if the mechanism is a user's own torch module.

    Every exception but DeviceError, also ``SystemExit``, becomes a failed evaluation.
    """
    start, options = time.monotonic(), {"device": device, "time_limit": time_limit}
    if trial.learning_rate is not None:
        task = task.at_rates()[trial.learning_rate]
    reason: Reason
    try:
        if isinstance(trial.mechanism, UserModule):
            return _train_in_process(train, trial, task, data, options)
        return train(trial, task, data, **options)
    except DeviceError:
        raise
    except ProcessEnded as error:
        reason, text = error.reason, str(error)
    except BaseException as error:  # sys.exit() included
        reason = "out_of_memory" if is_out_of_memory(error) else "error"
        text = f"{type(error).__name__}: {error}"
    seconds, budget = time.monotonic() - start, budget_of(task, data)
    return Evaluation.failure(trial, budget, reason, text, worker_name(), seconds)


def _train_in_process(
    train: Train, trial: Trial, task: Task, data: Data, options: dict[str, Any]
) -> Evaluation:
    limit, gpu_fraction = options["time_limit"], None
    if options["device"] != "cpu":
        torch.cuda.empty_cache()  # for the other process
        gpu_fraction = torch.cuda.get_per_process_memory_fraction()
    arguments = partial(train, trial, task, data, **options), gpu_fraction
    seconds = None if limit is None else limit + GRACE
    evaluation: Evaluation = call_in_process(_train_on_share, *arguments, time_limit=seconds)
    return evaluation


def _train_on_share(train: Callable[[], Evaluation], gpu_fraction: float | None) -> Evaluation:
    if gpu_fraction is not None:
        torch.cuda.set_per_process_memory_fraction(gpu_fraction)
    return train()


def calibrate_for(task: Task, device: str) -> Mapping[str, Any]:
    """Measure unit times of operations under the conditions of a task, to predict ``time_ms``."""
    from nas.costs.timing import calibrate

    model = task.main
    precision = resolve_precision(model.precision, torch.device(device), model.width)
    with training_settings():
        return calibrate(
            model.sizes,
            batch=model.batch_size,
            precision=precision,
            device=device,
            is_causal=model.is_causal,
            qkv_bias=model.qkv_bias,
        )


def budget_of(task: Task, data: Data, device: torch.device | None = None) -> Budget:
    """Return the budget of a training; of a task with several models, it is a single epoch.

    The precision "auto" is resolved for ``device``; None keeps it.
    """
    models = task.models(data).values()
    precisions = dict.fromkeys(
        model.precision
        if device is None
        else resolve_precision(model.precision, device, model.width)
        for model, _ in models
    )
    sizes = [(model.epochs, model.epoch_size(model_data)) for model, model_data in models]
    epochs, examples = sizes[0] if len(sizes) == 1 else (1, sum(e * n for e, n in sizes))
    return Budget(epochs, examples, "/".join(precisions))


def worker_name() -> str:
    """Return the host name and process id of this process, as "host:pid"."""
    return f"{platform.node()}:{os.getpid()}"


def _explain(error: Exception) -> tuple[Reason, str]:
    if reason := OUTCOMES.get(type(error)):
        return reason, f"{error}."
    if is_out_of_memory(error):
        return "out_of_memory", f"{type(error).__name__}: {error}"
    calls = "".join(traceback.format_tb(error.__traceback__)).splitlines()
    last = f"{type(error).__name__}: {first_line(error)}"
    return "error", "\n".join([*calls[1 - TRACEBACK_LINES :], last])


def _train(
    trial: Trial,
    task: Task,
    data: Data,
    meter: Meter,
    time_limit: float | None,
    progress: _Progress,
) -> None:
    """Train the candidate in each model of the task, until a metric misses the bound of a gate."""
    models = task.models(data)
    # Before any training: the mechanism must exist in all models, and its costs must be countable.
    resolved = {
        name: _resolved_at(trial, task, model_task) for name, (model_task, _) in models.items()
    }
    for name, (model_task, model_data) in models.items():
        with seeded(derive_seed(trial.seed, "noise")):
            model = build_model(resolved[name], model_task, model_data, trial.seed)
            block, first = _probed(model, resolved[name], model_task)
            last = LastTokens(first)
            check = partial(probe, block, model_task.sizes, is_padded=model_task.is_padded)
            with meter.paused(), seeded(derive_seed(trial.seed, "probe")):
                tolerance = check(is_causal=model_task.is_causal)
            if not isinstance(trial.mechanism, UserModule):  # `check_user_module` has warned
                warn_of_tolerance(tolerance, trial.key)
            graphs = graphs_on(meter.device)
            training = TrainingLoop(
                model, model_task, model_data, meter, time_limit=time_limit, graphs=graphs
            )
            try:
                for report in training.reports(derive_seed(trial.seed, "order")):
                    progress.add(name, report)
            finally:
                progress.executions[training.execution] = None
            with meter.paused(), suppress(Constant):  # a gate that hid a leak may have opened
                check(is_causal=model_task.is_causal, tokens=last.tokens)
        if trial.keeps_weights and model_task is task.main:
            progress.weights = attention_weights(model)
        if missed := task.missed(progress.metrics):
            progress.status, progress.error = "stopped", missed
            return


def _probed(
    model: nn.Module, form: ResolvedGenome | UserModule, task: ModelTask
) -> tuple[nn.Module, nn.Module]:
    """Return what `probe` runs (a genome's first block, a user's layers), and its first module."""
    if isinstance(form, UserModule) and isinstance(model, Transformer):
        return Stack(model.layers), model.layers[0]
    block = model.attentions()[layers_of(form, task)[0]]  # type: ignore[operator]
    return block, block


def _resolved_at(trial: Trial, task: Task, model_task: ModelTask) -> ResolvedGenome | UserModule:
    """Return a user's own module, or the genome at a model's sizes; raise NasError if none."""
    if isinstance(trial.mechanism, UserModule):
        return trial.mechanism
    if model_task is task.main:  # a trial's genome is in normal form at these sizes
        resolved = ResolvedGenome(
            trial.mechanism, model_task.sizes, model_task.is_causal, trial.key
        )
    else:
        resolved = model_task.resolve(trial.mechanism)
    costs_of(resolved, cost_context(model_task), ["elementwise"])
    return resolved


class LocalEvaluator:
    """An `Evaluator` that trains in this process, one candidate after another: `--backend local`.

    A candidate that ends its process ends the search, and a candidate that hangs inside an
    operation cannot be stopped; `ray_backend` handles both cases.
    """

    workers = 1

    def __init__(
        self,
        task: Task,
        data: Data,
        *,
        device: str = "cpu",
        time_limit: float | None = None,
        train: Train = train_candidate,
        target: tuple[Task, Data] | None = None,
    ) -> None:
        self._task, self._train = (task, data), train
        self._target = target or self._task
        self._device, self._time_limit = device, time_limit
        self._pending: deque[Trial] = deque()
        self.on_incident: Callable[[Incident], None] = log

    def measure(self, function: Callable[[str], Any]) -> Any:
        """See `Evaluator`."""
        return function(self._device)

    def submit(self, trials: Sequence[Trial]) -> None:
        """See `Evaluator`."""
        self._pending.extend(trials)

    def wait(self) -> list[tuple[Trial, Evaluation]]:
        """See `Evaluator`; a KeyboardInterrupt that the candidate's code raises is its failure."""
        if not self._pending:
            return []
        trial = self._pending.popleft()
        task, data = self._target if trial.is_target else self._task
        with record_interrupts() as interrupts:
            evaluation = train_guarded(
                self._train, trial, task, data, self._device, self._time_limit
            )
        if interrupts:  # even if the training swallowed the exception
            raise KeyboardInterrupt
        return [(trial, evaluation)]

    def close(self) -> None:
        """Drop all queued trials."""
        self._pending.clear()
