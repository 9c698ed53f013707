"""The training loop: epochs of gradient steps, each followed by a report on held-out examples.

The loop runs no Python code per example. On a GPU, Python does not wait for results inside an
epoch, and whole batches of training replay a CUDA graph. The loop is a generator: its caller may
stop it after any report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor, nn

from nas.common.captures import CudaGraphs
from nas.tasks import Data, Examples, ModelTask, Side
from nas.training import Report
from nas.training.hardware import Meter, resolve_precision
from nas.training.optimizers import ScheduledOptimizer
from nas.training.steps import Diverged, Steps, TrainStep, mixed

EVAL_BATCH: Final = 128  # on a CPU, whose second-level cache is too small for larger batches
EVAL_PAIRS: Final = 2**25  # pairs of query and key, in all heads, of a batch evaluated on a GPU
# Steps that Python may launch before it waits for the GPU and checks the time limit again.
STEPS_AHEAD: Final = 64
MAX_PREPARED: Final = 16  # data splits that a process caches, two for each model of a task


class TimeIsUp(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if a training has reached its time limit."""


class TrainingLoop:
    """One training of an untrained model on the meter's device; ``reports`` runs it.

    ``step`` runs a training step on the examples with given indices, (b,).

    ``time_limit``, in seconds, is checked between steps. ``graphs`` captures the steps as CUDA
    graphs (see ``graphs_on``); None runs them eagerly.
    """

    def __init__(
        self,
        model: nn.Module,
        task: ModelTask,
        data: Data,
        meter: Meter,
        *,
        time_limit: float | None = None,
        graphs: CudaGraphs | None = None,
    ) -> None:
        self._task, self._data, self._meter, self._time_limit = task, data, meter, time_limit
        self._device = device = meter.device
        self._precision = resolve_precision(task.precision, device, task.width)
        dtype = torch.bfloat16 if self._precision == "bfloat16" else torch.float32
        at_any_rate = task.model_copy(update={"learning_rate": 1.0})
        train, self._held_out = (
            prepared(at_any_rate, data, side, device, dtype) for side in ("train", "validation")
        )
        self._model = model.to(device)
        num_steps = task.epochs * math.ceil(task.epoch_size(data) / task.batch_size)
        optimizer = ScheduledOptimizer(model, task, num_steps)
        work = TrainStep(model, task, train, self._precision, device, optimizer)
        self.step = Steps(work, task.batch_size, graphs)

    @property
    def execution(self) -> str:
        """How the training steps ran, see ``Steps``."""
        return self.step.execution

    def reports(self, order_seed: int) -> Iterator[Report]:
        """Train for the task's number of epochs, and yield a report after each epoch.

        Diverged is raised if the loss or a metric is not finite, TimeIsUp at the time limit.
        """
        task, data = self._task, self._data
        rng = torch.Generator().manual_seed(order_seed)
        for epoch in range(1, task.epochs + 1):
            self._model.train()
            for chosen in self._batches(task.order(data, epoch, rng), task.batch_size):
                self.step(chosen)
            loss = self.step.work.mean_loss()
            metrics = self._evaluate(task.num_eval_examples(data, epoch))
            yield Report(epoch, loss, metrics, self._meter.core_seconds)

    @torch.no_grad()
    def _evaluate(self, count: int) -> dict[str, float]:
        """Return the metrics on the first ``count`` validation examples."""
        task, device = self._task, self._device
        totals = torch.zeros(task.num_tallies, dtype=torch.float64, device=device)
        self._model.eval()
        fitting = max(task.batch_size, EVAL_PAIRS // (task.heads * task.sizes.tokens**2))
        size = EVAL_BATCH if device.type == "cpu" else fitting
        for chosen in self._batches(torch.arange(count), size):
            with mixed(device, self._precision):
                totals += task.tally(self._model, self._held_out.batch(chosen))
        metrics = task.score(totals.tolist())
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise Diverged(f"on validation examples, {name} is {value}")
        return metrics

    def _batches(self, chosen: Tensor, size: int) -> Iterator[Tensor]:
        """Yield the batches of the examples ``chosen``; raise TimeIsUp at the time limit."""
        for number, batch in enumerate(torch.split(chosen.to(self._device), size), 1):
            if self._time_limit is not None and self._meter.elapsed > self._time_limit:
                raise TimeIsUp(f"stopped after its time limit of {self._time_limit:g} s")
            yield batch
            if number % STEPS_AHEAD == 0 and self._device.type == "cuda":
                _wait(self._device)


@lru_cache(maxsize=MAX_PREPARED)
def prepared(
    task: ModelTask, data: Data, side: Side, device: torch.device, dtype: torch.dtype
) -> Examples:
    """Return the examples of a data split on a device, cached for later candidates."""
    return task.examples(data, side, device, dtype)


def _wait(device: torch.device) -> None:
    """Wait for a GPU to finish all launched operations, without keeping a core busy."""
    end = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    end.record(torch.cuda.current_stream(device))
    end.synchronize()
