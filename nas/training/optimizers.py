"""AdamW under a task's schedule.

    m = b m + (1 - b) g,  v = c v + (1 - c) g²
    w = w (1 - r d) - r / (1 - b^t) · m / (sqrt(v / (1 - c^t)) + 1e-8)

(Loshchilov & Hutter 2019, algorithm 2.) The weight decay d is the task's, or zero for vectors where
``decay`` is ``matrices``; c is the task's ``beta2``. The one-cycle schedule (Smith & Topin 2018)
moves the rate r and, inversely, the momentum b. torch's fused kernel takes b as a number of the
host, so the step stays outside of CUDA graphs: a few kernels, launched while the GPU is busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nas.tasks import ModelTask

FIRST_MOMENT: Final = 0.9


class ScheduledAdamW:
    """torch's fused AdamW, and the schedule that sets its rate and momentum.

    Args:
        weights: on their device already.
        steps: of the whole training.
    """

    def __init__(self, weights: Iterable[nn.Parameter], task: ModelTask, steps: int) -> None:
        by_decay: dict[float, list[nn.Parameter]] = {}
        for weight in weights:
            by_decay.setdefault(decay_of(weight, task), []).append(weight)
        groups = [{"params": group, "weight_decay": decay} for decay, group in by_decay.items()]
        self.optimizer = torch.optim.AdamW(
            groups, lr=task.learning_rate, betas=(FIRST_MOMENT, task.beta2), fused=True
        )
        self._cycle: torch.optim.lr_scheduler.OneCycleLR | None = None
        if task.schedule == "one_cycle":
            self._cycle = torch.optim.lr_scheduler.OneCycleLR(
                self.optimizer, max_lr=task.learning_rate, total_steps=steps
            )

    def step(self) -> None:
        """Update all weights that have a gradient."""
        self.optimizer.step()
        if self._cycle is not None:
            self._cycle.step()


def decay_of(weight: Tensor, task: ModelTask) -> float:
    """The weight decay of a weight."""
    return task.weight_decay if task.decay == "all" or weight.ndim > 1 else 0.0
