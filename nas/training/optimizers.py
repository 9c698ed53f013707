"""AdamW under a task's schedule: torch's own on a processor, one that a CUDA graph can hold else.

    m = b m + (1 - b) g,  v = c v + (1 - c) g²
    w = w (1 - r d) - r / (1 - b^t) · m / (sqrt(v / (1 - c^t)) + 1e-8)

(Loshchilov & Hutter 2019, algorithm 2.) The decay d is the task's, or zero for vectors where it
spares those; c is the task's ``beta2``. The one-cycle schedule moves the rate r and, against it,
the momentum b. A CUDA graph repeats the numbers that it was captured with, and torch's fused AdamW
takes b as a number; so on a GPU the whole schedule lies on the device, and a count that the graph
itself raises says which row of it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nas.tasks import ModelTask

FIRST_MOMENT: Final = 0.9
LEAST_DIVISOR: Final = 1e-8


def make_optimizer(
    weights: Sequence[nn.Parameter],
    task: ModelTask,
    steps: int,
    device: torch.device,
    *,
    is_capturable: bool,
) -> Optimizer:
    """The optimiser of a training of so many steps.

    Args:
        is_capturable: a graph is to hold it. On a GPU it always can be held, so that a training
            that no graph can hold comes out the same.
    """
    if not is_capturable:
        return ScheduledAdamW(weights, task, steps)
    return CapturableAdamW(weights, task, schedule_of(task, steps).to(device))


def decay_of(weight: Tensor, task: ModelTask) -> float:
    """How much a weight decays: all do, or those with rows and columns."""
    return task.weight_decay if task.decay == "all" or weight.ndim > 1 else 0.0


class ScheduledAdamW:
    """torch's fused AdamW, whose numbers change on the host."""

    def __init__(self, weights: Sequence[nn.Parameter], task: ModelTask, steps: int) -> None:
        by_decay: dict[float, list[nn.Parameter]] = {}
        for weight in weights:
            by_decay.setdefault(decay_of(weight, task), []).append(weight)
        groups = [{"params": own, "weight_decay": decay} for decay, own in by_decay.items()]
        self._inner = torch.optim.AdamW(
            groups, lr=task.learning_rate, betas=(FIRST_MOMENT, task.beta2), fused=True
        )
        self._next = _scheduled(self._inner, task, steps)

    @property
    def state(self) -> tuple[Tensor, ...]:
        """None that could be brought back: part of it are numbers, and the rest comes later."""
        return ()

    def step(self) -> None:
        """Make one step."""
        self._inner.step()
        self._next()


class CapturableAdamW:
    """The same in operations on the device alone, all weights at a time.

    Args:
        weights: each with a gradient in every step or in none: they share one count of steps.
        schedule: (steps, 2), rate and momentum of every step, in float64 on the weights' device.
    """

    def __init__(self, weights: Sequence[nn.Parameter], task: ModelTask, schedule: Tensor) -> None:
        self._weights = [weight for weight in weights if weight.requires_grad]
        self._decays = [decay_of(weight, task) for weight in self._weights]
        self._schedule, self._beta2 = schedule, task.beta2
        self._count = torch.zeros(1, dtype=torch.int64, device=schedule.device)
        # Made here, not at the first step: what a graph makes, it makes again at each replay.
        self._first = [torch.zeros_like(weight) for weight in self._weights]
        self._second = [torch.zeros_like(weight) for weight in self._weights]

    @property
    def state(self) -> tuple[Tensor, ...]:
        """The count of steps and the moments."""
        return (self._count, *self._first, *self._second)

    @torch.no_grad()
    def step(self) -> None:
        """Make one step; weights without a gradient stay as they are."""
        # A short training has fewer steps than a graph is warmed up with.
        row = self._count.clamp(max=len(self._schedule) - 1)
        rate, momentum = self._schedule.index_select(0, row).unbind(1)
        self._count += 1
        scale = rate / (1.0 - momentum**self._count)
        spread = (1.0 - self._beta2 ** self._count.double()).sqrt()
        for decay, some in self._groups():
            weights, grads, first, second = map(list, zip(*some, strict=True))
            kept, momentum_, rest, root, divisor = (
                # A foreach operation takes a tensor for a number, if it is of the list's dtype.
                number.squeeze(0).to(weights[0].dtype)
                for number in (1.0 - rate * decay, momentum, 1.0 - momentum, spread, -scale)
            )
            torch._foreach_mul_(weights, kept)
            # No lerp: its weight as a tensor makes the host wait for it.
            torch._foreach_mul_(first, momentum_)
            torch._foreach_add_(first, torch._foreach_mul(grads, rest))
            torch._foreach_mul_(second, self._beta2)
            torch._foreach_addcmul_(second, grads, grads, 1.0 - self._beta2)
            below = torch._foreach_sqrt(second)
            torch._foreach_div_(below, root)
            torch._foreach_add_(below, LEAST_DIVISOR)
            torch._foreach_div_(below, divisor)
            torch._foreach_addcdiv_(weights, first, below)

    def _groups(self) -> list[tuple[float, list[tuple[Tensor, Tensor, Tensor, Tensor]]]]:
        """Weight, gradient and moments of all that have one, by decay and dtype."""
        found: dict[tuple[float, torch.dtype], list[tuple[Tensor, Tensor, Tensor, Tensor]]] = {}
        rows = zip(self._weights, self._decays, self._first, self._second, strict=True)
        for weight, decay, first, second in rows:
            if weight.grad is not None:
                own = found.setdefault((decay, weight.dtype), [])
                own.append((weight, weight.grad, first, second))
        return [(decay, some) for (decay, _), some in found.items()]


Optimizer: TypeAlias = ScheduledAdamW | CapturableAdamW


def schedule_of(task: ModelTask, steps: int) -> Tensor:
    """Rate and momentum of each step, as torch's own schedule has them: (steps, 2), float64."""
    weight = torch.zeros(1)
    inner = torch.optim.AdamW([weight], lr=task.learning_rate)
    following = _scheduled(inner, task, steps)
    rows = []
    for _ in range(steps):
        group = inner.param_groups[0]
        rows.append((group["lr"], group["betas"][0]))
        inner.step()  # changes nothing without a gradient; torch warns where it is left out
        following()
    return torch.tensor(rows, dtype=torch.float64)


def _scheduled(optimizer: torch.optim.Optimizer, task: ModelTask, steps: int) -> Callable[[], None]:
    """What brings the optimiser's numbers to the next step."""
    if task.schedule == "constant":
        return lambda: None
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=task.learning_rate, total_steps=steps
    )
    return cycle.step
