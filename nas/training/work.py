"""The two pieces of work that a training repeats: a step on some images, and judging some.

Each leaves its results in tensors on the device, so that nobody waits for one before an epoch ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from nas.training.optimizers import make_optimizer
from nas.training.part import part_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from nas.tasks import ImageData, Task
    from nas.tasks.backbone import Backbone
    from nas.training.optimizers import Optimizer
    from nas.training.part import Part


class Diverged(Exception):  # noqa: N818 - an outcome, not a fault
    """The loss or the outputs are no longer finite."""


class Learn:
    """One step of training on the chosen images; ``total`` sums their losses.

    Args:
        precision: ``float32`` or ``bfloat16`` (mixed).

    Attributes:
        is_watched: every loss is looked at, which costs nothing on a processor alone; elsewhere
            ``mean`` tells at the end of an epoch.
    """

    is_training = True

    def __init__(
        self,
        model: Backbone,
        part: Part,
        optimizer: Optimizer,
        precision: str,
        device: torch.device,
    ) -> None:
        self.model, self.device = model, device
        self._part, self._optimizer, self._precision = part, optimizer, precision
        self.total = torch.zeros((), device=device)
        self.is_watched = device.type == "cpu"

    @property
    def state(self) -> tuple[Tensor, ...]:
        """What a step changes besides the model."""
        return (self.total, *self._optimizer.state)

    def __call__(self, chosen: Tensor) -> None:
        """Make the step.

        Raises:
            Diverged: the loss is looked at, and not finite.
        """
        loss = self._loss(chosen)
        if self.is_watched:
            _check_finite(loss.item())
        self.total += loss.detach() * len(chosen)
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()

    def rehearse(self, chosen: Tensor) -> None:
        """What of a step runs through the model, without its consequences for weights."""
        torch.autograd.backward(self._loss(chosen))

    def _loss(self, chosen: Tensor) -> Tensor:
        with mixed(self.device, self._precision):
            logits = self.model.classify(self._part.batch(chosen))
        return F.cross_entropy(logits.float(), self._part.labels[chosen])

    def mean(self, images: int) -> float:
        """The mean loss of so many images, to begin again from zero.

        Raises:
            Diverged: it is not finite.
        """
        mean = float(self.total.item()) / images
        self.total.zero_()
        _check_finite(mean)
        return mean


class Judge:
    """Count the chosen images that the model gets right, without learning from them."""

    is_training = False

    def __init__(self, model: Backbone, part: Part, precision: str, device: torch.device) -> None:
        self.model, self.device = model, device
        self._part, self._precision = part, precision
        self._right = torch.zeros((), dtype=torch.int64, device=device)
        self._is_finite = torch.ones((), dtype=torch.bool, device=device)

    @property
    def state(self) -> tuple[Tensor, ...]:
        """What judging changes besides the model."""
        return self._right, self._is_finite

    @torch.no_grad()
    def __call__(self, chosen: Tensor) -> None:
        """Judge them."""
        logits = self._logits(chosen)
        self._right += (logits.argmax(dim=-1) == self._part.labels[chosen]).sum()
        self._is_finite &= logits.isfinite().all()

    @torch.no_grad()
    def rehearse(self, chosen: Tensor) -> None:
        """What of it runs through the model."""
        self._logits(chosen)

    def _logits(self, chosen: Tensor) -> Tensor:
        with mixed(self.device, self._precision):
            return self.model.classify(self._part.batch(chosen))

    def accuracy(self, images: int) -> float:
        """The share of so many images that were right, to begin again from none.

        Raises:
            Diverged: an output was not finite.
        """
        if not self._is_finite.item():
            raise Diverged("outputs for validation images are not finite")
        share = int(self._right.item()) / images
        self._right.zero_()
        return share


def mixed(device: torch.device, precision: str) -> torch.autocast:
    """Mixed precision within, where that is asked for."""
    # A graph may not hold on to casts of weights, which change from step to step.
    is_kept = device.type == "cpu"
    enabled = precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=is_kept)


def _check_finite(loss: float) -> None:
    if not math.isfinite(loss):
        raise Diverged(f"the training loss is {loss}")


def material(
    weights: Iterable[nn.Parameter],
    task: Task,
    data: ImageData,
    device: torch.device,
    *,
    precision: str,
    is_capturable: bool,
) -> tuple[Part, Optimizer]:
    """What a training learns from, and by; see ``make_optimizer``."""
    is_augmented = task.augmentation != "none"
    part = part_of(
        data, "train", task.patch, device, precision=precision, is_augmented=is_augmented
    )
    steps = task.epochs * math.ceil(len(part) / task.batch_size)
    return part, make_optimizer(weights, task, steps, device, is_capturable=is_capturable)
