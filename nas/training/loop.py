"""The training loop: epochs of gradient steps, each followed by a report on held-out examples.

No Python an example; on a GPU nothing waits for a result inside an epoch, and whole batches are
replays of a CUDA graph. The loop is a generator: who reads its reports may stop it after any.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import torch

from nas.training.hardware import resolve_precision
from nas.training.optimizers import make_optimizer
from nas.training.report import Report
from nas.training.stepping import STEPS_AHEAD, Steps, wait_on
from nas.training.steps import EvalStep, TrainStep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from nas.tasks import Data, Examples, ModelTask, Side
    from nas.training.hardware import Meter
    from nas.training.stepping import CudaGraphs

JUDGED_AT_ONCE: Final = 128
"""Examples in a batch without gradients: on a CPU more no longer fit its second-level cache."""
JUDGED_AT_ONCE_ON_GPU: Final = 512
MOST_PREPARED: Final = 16
"""Sides of data that a process keeps ready, two for each model of a task."""


class TimeIsUp(Exception):  # noqa: N818 - an outcome, not a fault
    """The training took longer than it may."""


class Training:
    """One training of a model.

    Args:
        time_limit: seconds, looked at between steps; None for no limit.
        graphs: captures steps, see ``graphs_on``; None does them call by call.
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
        precision = resolve_precision(task.precision, device)
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        train, held_out = (
            prepared(task, data, side, device, dtype) for side in ("train", "validation")
        )
        model.to(device)
        steps = task.epochs * math.ceil(task.epoch_size(data) / task.batch_size)
        is_capturable = graphs is not None or device.type != "cpu"
        optimizer = make_optimizer(
            list(model.parameters()), task, steps, device, is_capturable=is_capturable
        )
        self._learn = TrainStep(model, task, train, precision, device, optimizer)
        self._judge = EvalStep(model, task, held_out, precision, device)
        judged = JUDGED_AT_ONCE if device.type == "cpu" else JUDGED_AT_ONCE_ON_GPU
        self._training = Steps(self._learn, task.batch_size, graphs)
        self._judging = Steps(self._judge, judged, graphs)

    @property
    def execution(self) -> str:
        """How the steps ran, in words."""
        judging = self._judging
        said = f", judging: {judging.execution}" if judging.has_failed else ""
        return f"{self._training.execution}{said}"

    def reports(self, order_seed: int) -> Iterator[Report]:
        """Train the task's epochs, with a report after each.

        Raises:
            Diverged: the loss or an output is no longer finite.
            TimeIsUp: the time limit was reached.
        """
        task, data = self._task, self._data
        rng = torch.Generator().manual_seed(order_seed)
        for epoch in range(1, task.epochs + 1):
            self._repeat(self._training, task.order(data, epoch, rng))
            loss = self._learn.mean_loss()
            self._repeat(self._judging, torch.arange(task.num_eval_examples(data, epoch)))
            yield Report(epoch, loss, self._judge.metrics(), self._meter.core_seconds)

    def _repeat(self, steps: Steps, chosen: Tensor) -> None:
        """Do the work with all chosen examples."""
        steps.work.model.train(steps.work.is_training)
        for number, batch in enumerate(torch.split(chosen.to(self._device), steps.size), 1):
            self._check_time()
            steps(batch)
            if number % STEPS_AHEAD == 0:
                wait_on(self._device)

    def _check_time(self) -> None:
        if self._time_limit is not None and self._meter.elapsed > self._time_limit:
            raise TimeIsUp(f"stopped after its time limit of {self._time_limit:g} s")


@lru_cache(maxsize=MOST_PREPARED)
def prepared(
    task: ModelTask, data: Data, side: Side, device: torch.device, dtype: torch.dtype
) -> Examples:
    """A side of the data on a device: a process trains one candidate after the other on it."""
    return task.examples(data, side, device, dtype)
