"""The training loop: epochs of gradient steps, each followed by a report on held-out examples.

The loop runs no Python code per example. On a GPU, Python does not wait for results inside an
epoch, and whole batches of training replay a CUDA graph. The loop is a generator: its caller may
stop it after any report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

from nas.common.captures import CudaGraphs
from nas.training import Report
from nas.training.cuda_graphs import STEPS_AHEAD, Steps, wait_on
from nas.training.hardware import Meter, resolve_precision
from nas.training.optimizers import ScheduledOptimizer
from nas.training.steps import EvalStep, TrainStep

if TYPE_CHECKING:
    from nas.tasks import Data, Examples, ModelTask, Side

EVAL_BATCH: Final = 128
"""Batch size of evaluations on a CPU; larger batches do not fit into its second-level cache."""
EVAL_PAIRS: Final = 2**25
"""Pairs of query and key, in all heads, of a batch of evaluations on a GPU."""
MAX_PREPARED: Final = 16
"""Number of prepared data splits that a process caches, two for each model of a task."""


class TimeIsUp(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if a training has reached its time limit."""


class TrainingLoop:
    """One training of a model, whose method ``reports`` runs it.

    Args:
        model: the untrained model, which is moved to the meter's device.
        time_limit: longest duration in seconds, checked between steps; None for no limit.
        graphs: captures the steps as CUDA graphs (see ``graphs_on``); None runs them eagerly.
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
        precision = resolve_precision(task.precision, device, task.width)
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        train, held_out = (
            prepared(task, data, side, device, dtype) for side in ("train", "validation")
        )
        self._model = model.to(device)
        num_steps = task.epochs * math.ceil(task.epoch_size(data) / task.batch_size)
        optimizer = ScheduledOptimizer(model, task, num_steps)
        self._train_step = TrainStep(model, task, train, precision, device, optimizer)
        self._eval_step = EvalStep(model, task, held_out, precision, device)
        self._train_steps = Steps(self._train_step, task.batch_size, graphs)

    @property
    def execution(self) -> str:
        """How the training steps ran, see ``Steps``."""
        return self._train_steps.execution

    def reports(self, order_seed: int) -> Iterator[Report]:
        """Train for the task's number of epochs, and yield a report after each epoch.

        Raises:
            Diverged: the training loss, or a metric on validation examples, is not finite.
            TimeIsUp: the time limit was reached.
        """
        task, data = self._task, self._data
        rng = torch.Generator().manual_seed(order_seed)
        for epoch in range(1, task.epochs + 1):
            self._model.train()
            self._repeat(self._train_steps, task.order(data, epoch, rng), task.batch_size)
            loss = self._train_step.mean_loss()
            self._model.eval()
            held_out = torch.arange(task.num_eval_examples(data, epoch))
            # In eager mode, because an epoch evaluates few batches.
            self._repeat(self._eval_step, held_out, _eval_batch(task, self._device))
            yield Report(epoch, loss, self._eval_step.metrics(), self._meter.core_seconds)

    def _repeat(self, step: Callable[[Tensor], None], chosen: Tensor, size: int) -> None:
        """Run a step on batches of the examples ``chosen``; raise TimeIsUp at the time limit."""
        for number, batch in enumerate(torch.split(chosen.to(self._device), size), 1):
            if self._time_limit is not None and self._meter.elapsed > self._time_limit:
                raise TimeIsUp(f"stopped after its time limit of {self._time_limit:g} s")
            step(batch)
            if number % STEPS_AHEAD == 0:
                wait_on(self._device)


def _eval_batch(task: ModelTask, device: torch.device) -> int:
    """Return the batch size of evaluations, at least that of trainings, which need more memory."""
    if device.type == "cpu":
        return EVAL_BATCH
    return max(task.batch_size, EVAL_PAIRS // (task.heads * task.sizes.tokens**2))


@lru_cache(maxsize=MAX_PREPARED)
def prepared(
    task: ModelTask, data: Data, side: Side, device: torch.device, dtype: torch.dtype
) -> Examples:
    """Return the examples of a data split on a device, cached for later candidates."""
    return task.examples(data, side, device, dtype)
