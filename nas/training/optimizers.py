"""The optimiser AdamW, whose learning rate and momentum follow a task's schedule.

    m = b m + (1 - b) g,  v = c v + (1 - c) g²
    w = w (1 - r d) - r / (1 - b^t) · m / (sqrt(v / (1 - c^t)) + 1e-8)

(Loshchilov & Hutter 2019, algorithm 2.) At step t, w is a weight and g is its gradient; m and v are
its first and second moments, which start at zero. The weight decay d is the task's
``weight_decay``; if the task's ``decay`` is ``matrices``, d is zero for vectors. c is the task's
``beta2``. The one-cycle schedule (Smith & Topin 2018) first raises and then lowers the learning
rate r, and changes the momentum b in the opposite direction.

This module calls torch's fused kernel. ``torch.optim.AdamW`` gives the same numbers, but it imports
torch's compiler, which takes two seconds in every worker, and its Python code takes longer than the
call of the kernel. The kernel takes the changing b as a Python number, so the step cannot be part
of a CUDA graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from nas.tasks import ModelTask

FIRST_MOMENT: Final = 0.9
EPSILON: Final = 1e-8
WARM_UP: Final = 0.3  # fraction of steps before the peak; these are the defaults of OneCycleLR
MOMENTA: Final = (0.95, 0.85)  # at both ends of the schedule, and at the peak
START_DIVISOR, END_DIVISOR = 25.0, 1e4  # first rate = peak / 25; last rate = first / 1e4


class ScheduledAdamW:
    """AdamW with the learning rate and momentum of a task's schedule.

    Args:
        weights: parameters to train, already on their device.
        task: defines the schedule and the hyperparameters of AdamW.
        steps: number of steps of the whole training.
    """

    def __init__(self, weights: Iterable[nn.Parameter], task: ModelTask, steps: int) -> None:
        self._task, self._steps, self._count = task, steps, 0
        # Weights with their first and second moments, and numbers of steps; by weight decay and
        # dtype, because a call of the kernel takes one of each.
        self._groups: dict[
            tuple[float, torch.dtype], list[tuple[nn.Parameter, Tensor, Tensor, Tensor]]
        ] = {}
        for weight in weights:
            moments, count = torch.zeros_like(weight), torch.zeros((), device=weight.device)
            group = self._groups.setdefault((decay_of(weight, task), weight.dtype), [])
            group.append((weight, moments, moments.clone(), count))

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights that have a gradient, with the schedule's next learning rate."""
        rate, momentum = rate_and_momentum(self._task, self._count, self._steps)
        self._count += 1
        for (decay, _), group in self._groups.items():
            rows = [(w, w.grad, *state) for w, *state in group if w.grad is not None]
            if not rows:
                continue
            weights, gradients, first, second, counts = map(list, zip(*rows, strict=True))
            torch._foreach_add_(counts, 1)
            torch._fused_adamw_(
                weights,
                gradients,
                first,
                second,
                [],
                counts,
                lr=rate,
                beta1=momentum,
                beta2=self._task.beta2,
                weight_decay=decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )


def decay_of(weight: Tensor, task: ModelTask) -> float:
    """Return the weight decay of a parameter: the task's, or 0 where it decays only matrices."""
    return task.weight_decay if task.decay == "all" or weight.ndim > 1 else 0.0


def rate_and_momentum(task: ModelTask, step: int, steps: int) -> tuple[float, float]:
    """Return the learning rate and the momentum of step number ``step`` of ``steps``, from 0."""
    peak = task.learning_rate
    if task.schedule == "constant":
        return peak, FIRST_MOMENT
    end, top = MOMENTA
    first, turn, last = peak / START_DIVISOR, WARM_UP * steps - 1, steps - 1
    if step <= turn:
        fraction = step / turn
        return _cosine(first, peak, fraction), _cosine(end, top, fraction)
    fraction = (step - turn) / (last - turn)
    return _cosine(peak, first / END_DIVISOR, fraction), _cosine(top, end, fraction)


def _cosine(start: float, end: float, fraction: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * fraction) + 1)
