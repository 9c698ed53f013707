"""The two repeated steps of a training: a gradient step, and the evaluation of a batch.

Results stay in tensors on the device, so that the host waits for them only at the end of an epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from nas.training.optimizers import ScheduledAdamW

if TYPE_CHECKING:
    from nas.tasks import Examples, ModelTask


class Diverged(Exception):  # noqa: N818 - an outcome, not a fault
    """The loss or the outputs are no longer finite."""


@dataclass
class TrainStep:
    """Gradients of the chosen examples, then a step of the optimiser.

    Attributes:
        precision: ``float32`` or ``bfloat16`` (mixed).
        checks_loss: check every loss, as on a processor. On a GPU the host would wait for each
            loss, so ``mean_loss`` checks at the end of an epoch.
    """

    is_training: ClassVar[bool] = True

    model: nn.Module
    task: ModelTask
    examples: Examples
    precision: str
    device: torch.device
    optimizer: ScheduledAdamW

    def __post_init__(self) -> None:
        # Sums of losses and targets; tensors, because a CUDA graph has no other state.
        self.totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.checks_loss = self.device.type == "cpu"

    def __call__(self, chosen: Tensor) -> None:
        """Compute the gradients of the mean loss; a CUDA graph may hold this.

        Args:
            chosen: indices (b,) of examples.

        Raises:
            Diverged: a checked loss is not finite.
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
        """Update the weights, outside of CUDA graphs."""
        self.optimizer.step()

    def mean_loss(self) -> float:
        """The mean over all targets since the last call.

        Raises:
            Diverged: it is not finite.
        """
        total, targets = self.totals.tolist()
        self.totals.zero_()
        _check_finite(total / targets)
        return float(total / targets)


@dataclass
class EvalStep:
    """Tallies of the chosen examples, without gradients."""

    is_training: ClassVar[bool] = False

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
        """Evaluate examples, given by indices (b,)."""
        with mixed(self.device, self.precision):
            self.totals += self.task.tally(self.model, self.examples.batch(chosen))

    def finish(self) -> None:
        """Do nothing."""

    def metrics(self) -> dict[str, float]:
        """The metrics over all examples since the last call.

        Raises:
            Diverged: a metric is not finite.
        """
        metrics = self.task.score(self.totals.tolist())
        self.totals.zero_()
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise Diverged(f"on validation examples, {name} is {value}")
        return metrics


Work: TypeAlias = TrainStep | EvalStep


def mixed(device: torch.device, precision: str) -> torch.autocast:
    """A context of mixed precision, if ``precision`` is bfloat16."""
    # A graph must not cache casts of weights, which change from step to step.
    is_cached = device.type == "cpu"
    enabled = precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=is_cached)


def _check_finite(loss: float) -> None:
    if not math.isfinite(loss):
        raise Diverged(f"the training loss is {loss}")
