"""The two repeated steps of a training: a training step, and an evaluation step on a batch.

Sums of losses and metrics stay in tensors on the device, so that Python waits for them only at
the end of an epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nas.training.optimizers import ScheduledOptimizer

if TYPE_CHECKING:
    from nas.tasks import Examples, ModelTask


class Diverged(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if the training loss, or a metric on validation examples, is not finite."""


@dataclass
class TrainStep:
    """A training step: a call computes the gradients of a batch, ``finish`` updates the weights.

    On a GPU, where Python would wait for a loss, only ``mean_loss`` checks it, once an epoch.
    """

    model: nn.Module
    task: ModelTask
    examples: Examples
    precision: str
    device: torch.device
    optimizer: ScheduledOptimizer

    def __post_init__(self) -> None:
        # The sum of losses and the number of targets, in a tensor that a CUDA graph can update.
        self.totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.checks_loss = self.device.type == "cpu"

    def __call__(self, chosen: Tensor) -> None:
        """Compute the gradients of the mean loss of the examples ``chosen``, indices (b,).

        Raises:
            Diverged: the loss is not finite, and ``checks_loss`` is set.
        """
        with mixed(self.device, self.precision):
            total, targets = self.task.loss(self.model, self.examples.batch(chosen))
        loss = total / targets
        if self.checks_loss:
            _check_finite(loss.item())
        self.totals[0] += total.detach()
        self.totals[1] += targets
        self.model.zero_grad()
        torch.autograd.backward(loss)
        if self.task.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.task.clip, foreach=True)

    def finish(self) -> None:
        """Update the weights; a CUDA graph contains a call, but never this method."""
        self.optimizer.step()

    def mean_loss(self) -> float:
        """Return the mean loss over all targets since the last call; raise Diverged if infinite."""
        total, targets = self.totals.tolist()
        self.totals.zero_()
        _check_finite(total / targets)
        return float(total / targets)


@dataclass
class EvalStep:
    """An evaluation step: a call adds the results of ``task.tally`` to ``totals``."""

    model: nn.Module
    task: ModelTask
    examples: Examples
    precision: str
    device: torch.device

    def __post_init__(self) -> None:
        shape = self.task.num_tallies
        self.totals = torch.zeros(shape, dtype=torch.float64, device=self.device)

    @torch.no_grad()
    def __call__(self, chosen: Tensor) -> None:
        """Add the sums over the examples ``chosen``, indices (b,)."""
        with mixed(self.device, self.precision):
            self.totals += self.task.tally(self.model, self.examples.batch(chosen))

    def metrics(self) -> dict[str, float]:
        """Return the metrics since the last call; raise Diverged if one is not finite."""
        metrics = self.task.score(self.totals.tolist())
        self.totals.zero_()
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise Diverged(f"on validation examples, {name} is {value}")
        return metrics


def mixed(device: torch.device, precision: str) -> torch.autocast:
    """Return a context for mixed precision if ``precision`` is bfloat16, else without effect."""
    # A graph must not cache casts of weights, which change from step to step.
    is_cached = device.type == "cpu"
    enabled = precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=is_cached)


def _check_finite(loss: float) -> None:
    if not math.isfinite(loss):
        raise Diverged(f"the training loss is {loss}")
