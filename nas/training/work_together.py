"""The work of several seeds' training in one pass: as work.py, for all of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nas.training.work import material, mixed

if TYPE_CHECKING:
    from nas.tasks import ImageData, Task
    from nas.training.optimizers import Optimizer
    from nas.training.part import Part
    from nas.training.stacked import Stacked


class LearnTogether:
    """As ``work.Learn``, a step of every model: ``chosen`` has a column for each."""

    is_training = True

    def __init__(
        self, model: Stacked, part: Part, optimizer: Optimizer, precision: str, device: torch.device
    ) -> None:
        self.model, self.device = model, device
        self._part, self._optimizer, self._precision = part, optimizer, precision
        self.total = torch.zeros(len(model), device=device)

    @property
    def state(self) -> tuple[Tensor, ...]:
        """What a step changes besides the weights."""
        return (self.total, *self.model.extras.values(), *self._optimizer.state)

    def __call__(self, chosen: Int[Tensor, "b s"]) -> None:
        """Make the step."""
        losses = self._losses(chosen)
        self.total += losses.detach() * len(chosen)
        self._optimizer.zero_grad()
        torch.autograd.backward(losses.sum())
        self._optimizer.step()

    def rehearse(self, chosen: Int[Tensor, "b s"]) -> None:
        """What of a step runs through the models."""
        torch.autograd.backward(self._losses(chosen).sum())

    def _losses(self, chosen: Int[Tensor, "b s"]) -> Float[Tensor, " s"]:
        with mixed(self.device, self._precision):
            logits = self.model(self.model.batch(self._part, chosen), is_shared=False)
        labels = self._part.labels[chosen.t()]
        each = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none")
        return each.view(labels.shape).mean(dim=1)

    def means(self, images: int) -> list[float]:
        """Each model's mean loss of so many images, to begin again from zero."""
        means: list[float] = (self.total / images).tolist()
        self.total.zero_()
        return means


class JudgeTogether:
    """As ``work.Judge``: count what each model gets right of images that all share."""

    is_training = False

    def __init__(self, model: Stacked, part: Part, precision: str, device: torch.device) -> None:
        self.model, self.device = model, device
        self._part, self._precision = part, precision
        self._right = torch.zeros(len(model), dtype=torch.int64, device=device)
        self._is_finite = torch.ones(len(model), dtype=torch.bool, device=device)

    @property
    def state(self) -> tuple[Tensor, ...]:
        """What judging changes besides the models."""
        return self._right, self._is_finite

    @torch.no_grad()
    def __call__(self, chosen: Int[Tensor, " b"]) -> None:
        """Judge them."""
        logits = self._logits(chosen)
        self._right += (logits.argmax(dim=-1) == self._part.labels[chosen]).sum(dim=1)
        self._is_finite &= logits.isfinite().all(dim=-1).all(dim=-1)

    @torch.no_grad()
    def rehearse(self, chosen: Int[Tensor, " b"]) -> None:
        """What of it runs through the models."""
        self._logits(chosen)

    def _logits(self, chosen: Int[Tensor, " b"]) -> Float[Tensor, "s b c"]:
        with mixed(self.device, self._precision):
            logits: Tensor = self.model(self._part.batch(chosen), is_shared=True)
        return logits

    def accuracies(self, images: int) -> list[float | None]:
        """Each model's share of so many images, to begin again; None where not all is finite."""
        right, finite = self._right.tolist(), self._is_finite.tolist()
        self._right.zero_()
        return [r / images if is_ok else None for r, is_ok in zip(right, finite, strict=True)]


def learning(
    stacked: Stacked, task: Task, data: ImageData, precision: str, device: torch.device
) -> LearnTogether:
    """The steps of a whole training of these models."""
    part, optimizer = material(
        stacked.weights,
        task,
        data,
        device,
        precision=precision,
        is_capturable=device.type != "cpu",
    )
    return LearnTogether(stacked, part, optimizer, precision, device)
