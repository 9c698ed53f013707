"""The two pieces of work that a training repeats: a step on some examples, and judging some.

Each leaves its results in tensors on the device, so that nobody waits for one before an epoch ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from nas.tasks import Examples, ModelTask
    from nas.training.optimizers import Optimizer


class Diverged(Exception):  # noqa: N818 - an outcome, not a fault
    """The loss or the outputs are no longer finite."""


@dataclass
class TrainStep:
    """One step of training on the chosen examples, given by their indices.

    Attributes:
        precision: ``float32`` or ``bfloat16`` (mixed).
        is_watched: every loss is looked at, which costs nothing on a processor alone; elsewhere
            ``mean_loss`` tells at the end of an epoch.
    """

    is_training: ClassVar[bool] = True

    model: nn.Module
    task: ModelTask
    examples: Examples
    precision: str
    device: torch.device
    optimizer: Optimizer

    def __post_init__(self) -> None:
        # Summed losses and targets: a CUDA graph counts in tensors alone.
        self._sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.is_watched = self.device.type == "cpu"

    @property
    def state(self) -> tuple[Tensor, ...]:
        """What a step changes besides the model."""
        return (self._sums, *self.optimizer.state)

    def __call__(self, chosen: Tensor) -> None:
        """Make the step.

        Raises:
            Diverged: the loss is looked at, and not finite.
        """
        with mixed(self.device, self.precision):
            total, targets = self.task.loss(self.model, self.examples.batch(chosen))
        loss = total / targets
        if self.is_watched:
            _check_finite(loss.item())
        self._sums[0] += total.detach()
        self._sums[1] += targets
        self.model.zero_grad()
        torch.autograd.backward(loss)
        if self.task.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.task.clip, foreach=True)
        self.optimizer.step()

    def mean_loss(self) -> float:
        """Over all targets since it was asked last.

        Raises:
            Diverged: it is not finite.
        """
        total, targets = self._sums.tolist()
        self._sums.zero_()
        _check_finite(total / targets)
        return float(total / targets)


@dataclass
class EvalStep:
    """Tally what the model makes of the chosen examples, without learning from them."""

    is_training: ClassVar[bool] = False

    model: nn.Module
    task: ModelTask
    examples: Examples
    precision: str
    device: torch.device

    def __post_init__(self) -> None:
        shape = self.task.num_tallies
        self._totals = torch.zeros(shape, dtype=torch.float64, device=self.device)

    @property
    def state(self) -> tuple[Tensor, ...]:
        """What judging changes besides the model."""
        return (self._totals,)

    @torch.no_grad()
    def __call__(self, chosen: Tensor) -> None:
        """Judge them."""
        with mixed(self.device, self.precision):
            self._totals += self.task.tally(self.model, self.examples.batch(chosen))

    def metrics(self) -> dict[str, float]:
        """The metrics over all examples since they were asked for last.

        Raises:
            Diverged: one is not finite.
        """
        found = self.task.score(self._totals.tolist())
        self._totals.zero_()
        for name, value in found.items():
            if not math.isfinite(value):
                raise Diverged(f"on validation examples, {name} is {value}")
        return found


Work: TypeAlias = TrainStep | EvalStep


def mixed(device: torch.device, precision: str) -> torch.autocast:
    """Mixed precision within, where that is asked for."""
    # A graph may not hold on to casts of weights, which change from step to step.
    is_kept = device.type == "cpu"
    enabled = precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=is_kept)


def _check_finite(loss: float) -> None:
    if not math.isfinite(loss):
        raise Diverged(f"the training loss is {loss}")
