"""The training loop: epochs of gradient steps, each followed by a look at held-out images.

No Python per image; on a GPU nothing waits for a result inside an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nas.evaluation.hardware import Meter, resolve_precision
from nas.evaluation.record import Epoch
from nas.tasks.backbone import patches

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from nas.tasks import ImageData, Task
    from nas.tasks.backbone import Backbone

JUDGED_AT_ONCE: Final = 128
"""Images in a batch without gradients: on a CPU more no longer fit its second-level cache."""


class Diverged(Exception):  # noqa: N818 - an outcome, not a fault
    """The loss or the outputs are no longer finite."""


class TimeIsUp(Exception):  # noqa: N818 - an outcome, not a fault
    """The training took longer than it may."""


@dataclass
class Session:
    """One training under way: its limits, and the curve as far as it came."""

    task: Task
    device: torch.device
    time_limit: float | None
    meter: Meter
    curve: list[Epoch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.precision = resolve_precision(self.task.precision, self.device)

    def fit(self, model: Backbone, data: ImageData, order_seed: int) -> float:
        """Train the model; the accuracy at the end, and the curve on the way."""
        task = self.task
        model.to(self.device)
        train, held_out = (
            _Part(data, name, task.patch, self.device) for name in ("train", "validation")
        )
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=task.learning_rate, weight_decay=task.weight_decay, fused=True
        )
        steps = task.epochs * math.ceil(len(train) / task.batch_size)
        schedule = _schedule(task, optimizer, steps)
        order = torch.Generator().manual_seed(order_seed)
        accuracy = 0.0
        for epoch in range(1, task.epochs + 1):
            loss = self._epoch(model, train, optimizer, schedule, order)
            count = len(held_out) if epoch == task.epochs else min(task.curve_images, len(held_out))
            accuracy = self._judge(model, held_out, count)
            self.curve.append(Epoch(epoch, loss, accuracy))
        return accuracy

    def _epoch(
        self,
        model: Backbone,
        train: _Part,
        optimizer: torch.optim.Optimizer,
        schedule: Callable[[], None],
        order: torch.Generator,
    ) -> float:
        """One pass over the training images; the mean loss."""
        model.train()
        total = torch.zeros((), device=self.device)
        batches = torch.randperm(len(train), generator=order).to(self.device)
        for chosen in torch.split(batches, self.task.batch_size):
            self._check_time()
            loss = self._loss(model, train, chosen)
            if self.device.type == "cpu" and not math.isfinite(loss.item()):
                raise Diverged(f"the training loss is {loss.item()}")
            total += loss.detach() * len(chosen)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule()
        mean = float(total.item()) / len(train)
        if not math.isfinite(mean):
            raise Diverged(f"the training loss is {mean}")
        return mean

    def _loss(self, model: Backbone, part: _Part, chosen: Tensor) -> Tensor:
        with self._autocast():
            logits = model.classify(part.normalised(chosen))
        return F.cross_entropy(logits.float(), part.labels[chosen])

    @torch.no_grad()
    def _judge(self, model: Backbone, part: _Part, count: int) -> float:
        """The share of the first ``count`` images that the model gets right."""
        model.eval()
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        finite = torch.ones((), dtype=torch.bool, device=self.device)
        for chosen in torch.split(torch.arange(count, device=self.device), JUDGED_AT_ONCE):
            self._check_time()
            with self._autocast():
                logits = model.classify(part.normalised(chosen))
            right += (logits.argmax(dim=-1) == part.labels[chosen]).sum()
            finite &= logits.isfinite().all()
        if not finite.item():
            raise Diverged("outputs for validation images are not finite")
        return int(right.item()) / count

    def _autocast(self) -> torch.autocast:
        return torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"
        )

    def _check_time(self) -> None:
        if self.time_limit is not None and self.meter.elapsed > self.time_limit:
            raise TimeIsUp(f"stopped after its time limit of {self.time_limit:g} s")


class _Part:
    """Training or validation images on the device, in patches; batches are normalised there."""

    def __init__(self, data: ImageData, name: str, patch: int, device: torch.device) -> None:
        self.cut = patches(_tensor(getattr(data, name), device), patch)
        self.labels = _tensor(getattr(data, f"{name}_labels"), device)
        mean, std = (torch.tensor(v, device=device) for v in (data.mean, data.std))
        self.mean = mean.repeat_interleave(patch**2)
        self.scale = (1.0 / std).repeat_interleave(patch**2)

    def __len__(self) -> int:
        return len(self.labels)

    def normalised(self, chosen: Tensor) -> Float[Tensor, "b n cpp"]:
        """The chosen images' patches, with mean 0 and deviation 1 in each channel."""
        # index_select copies whole images where indexing copies byte by byte.
        return (self.cut.index_select(0, chosen).float() - self.mean) * self.scale


def _tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    # A copy: arrays in shared memory are read-only, which torch cannot express.
    return torch.tensor(array, device=device)


def _schedule(task: Task, optimizer: torch.optim.Optimizer, steps: int) -> Callable[[], None]:
    if task.schedule == "constant":
        return lambda: None
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=task.learning_rate, total_steps=steps
    )
    return cycle.step
