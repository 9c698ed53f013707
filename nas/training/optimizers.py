"""The optimisers AdamW and Muon, whose learning rate and momentum follow a task's schedule.

AdamW is that of Loshchilov & Hutter 2019, algorithm 2. If the task's ``decay`` is ``matrices``, the
weight decay of vectors is zero. The one-cycle schedule (Smith & Topin 2018) first raises and then
lowers the learning rate, and changes the first momentum in the opposite direction.

With ``optimizer: muon``, Muon trains the matrices of linear maps in the layers: their momentum is
replaced by a nearly orthogonal matrix, whose scale .2 sqrt(max(rows, columns)) gives steps as large
as AdamW's, so that both have the same rate and decay (Jordan et al. 2024; Liu et al. 2025, arXiv
2502.16982). ``torch.optim.Muon`` computes the same for one matrix at a time; here all matrices of
one shape are updated together, which a GPU does in far fewer operations.

AdamW is torch's fused kernel. ``torch.optim.AdamW`` gives the same numbers, but it imports torch's
compiler, which takes two seconds in every worker. The kernel takes the changing momentum as a
Python number, so the step cannot be part of a CUDA graph.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nas.tasks import ModelTask

FIRST_MOMENT: Final = 0.9
EPSILON: Final = 1e-8
WARM_UP: Final = 0.3  # fraction of steps before the peak; these are the defaults of OneCycleLR
MOMENTA: Final = (0.95, 0.85)  # at both ends of the schedule, and at the peak
START_DIVISOR, END_DIVISOR = 25.0, 1e4  # first rate = peak / 25; last rate = first / 1e4
RISE, FALL = 0.05, 0.4  # fractions of the steps in which warmdown raises the rate, and lowers it
MUON_MOMENTUM: Final = 0.95
NEWTON_SCHULZ: Final = (3.4445, -4.7750, 2.0315)  # of Jordan et al., for five iterations


class ScheduledOptimizer:
    """A task's optimiser for ``steps`` steps of a model, which is already on its device."""

    def __init__(self, model: nn.Module, task: ModelTask, steps: int) -> None:
        self._task, self._steps, self._count = task, steps, 0
        # Matrices that Muon trains with their momenta, by shape and dtype.
        self._matrices: dict[tuple[torch.Size, torch.dtype], list[tuple[nn.Parameter, Tensor]]] = {}
        matrices = set[Tensor]()
        if task.optimizer == "muon":
            layers = getattr(model, "layers", nn.ModuleList())
            matrices = {m.weight for m in layers.modules() if isinstance(m, nn.Linear)}
        # Weights with their first and second moments, and numbers of steps; by weight decay and
        # dtype, because a call of the kernel takes one of each.
        self._groups: dict[
            tuple[float, torch.dtype], list[tuple[nn.Parameter, Tensor, Tensor, Tensor]]
        ] = {}
        for weight in model.parameters():
            if weight in matrices:
                pairs = self._matrices.setdefault((weight.shape, weight.dtype), [])
                pairs.append((weight, torch.zeros_like(weight)))
                continue
            moments, count = torch.zeros_like(weight), torch.zeros((), device=weight.device)
            group = self._groups.setdefault((decay_of(weight, task), weight.dtype), [])
            group.append((weight, moments, moments.clone(), count))

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights that have a gradient, with the schedule's next learning rate."""
        rate, momentum = rate_and_momentum(self._task, self._count, self._steps)
        self._count += 1
        for pairs in self._matrices.values():
            used = [(w, w.grad, momentum) for w, momentum in pairs if w.grad is not None]
            if used:
                weights, gradients, momenta = map(list, zip(*used, strict=True))
                muon_step(weights, gradients, momenta, rate, self._task.weight_decay)
        for (decay, _), group in self._groups.items():
            rows = [(w, w.grad, *state) for w, *state in group if w.grad is not None]
            if not rows:
                continue
            weights, gradients, first, second, counts = map(list, zip(*rows, strict=True))
            torch._foreach_add_(counts, 1)
            torch._fused_adamw_(
                *(weights, gradients, first, second, [], counts),
                lr=rate,
                beta1=momentum,
                beta2=self._task.beta2,
                weight_decay=decay,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )


def muon_step(
    weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor], rate: float, decay: float
) -> None:
    """Update matrices of one shape and their momenta by a step of Muon with Nesterov momentum."""
    torch._foreach_lerp_(momenta, gradients, 1 - MUON_MOMENTUM)
    ahead = torch.stack(torch._foreach_lerp(gradients, momenta, MUON_MOMENTUM))
    updates = orthogonalised(ahead).to(ahead.dtype).unbind()
    torch._foreach_mul_(weights, 1 - rate * decay)
    torch._foreach_add_(weights, updates, alpha=-0.2 * max(ahead.shape[1:]) ** 0.5 * rate)


def orthogonalised(matrices: Float[Tensor, "k m n"]) -> Float[Tensor, "k m n"]:
    """Return bfloat16 matrices with the same singular vectors, and singular values near 1."""
    a, b, c = NEWTON_SCHULZ
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = (matrices.mT if is_tall else matrices).bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


def decay_of(weight: Tensor, task: ModelTask) -> float:
    """Return the weight decay of a parameter: the task's, or 0 where it decays only matrices."""
    return task.weight_decay if task.decay == "all" or weight.ndim > 1 else 0.0


def rate_and_momentum(task: ModelTask, step: int, steps: int) -> tuple[float, float]:
    """Return the learning rate and the momentum of step number ``step`` of ``steps``, from 0."""
    peak = task.learning_rate
    if task.schedule == "constant":
        return peak, FIRST_MOMENT
    if task.schedule == "warmdown":
        # `nas ladder` times more steps than a short training has.
        share = min((step + 1) / (RISE * steps), max(0, steps - step) / (FALL * steps), 1.0)
        return peak * share, FIRST_MOMENT
    end, top = MOMENTA
    first, turn, last = peak / START_DIVISOR, WARM_UP * steps - 1, steps - 1
    if step <= turn:
        fraction = step / turn
        return _cosine(first, peak, fraction), _cosine(end, top, fraction)
    fraction = (step - turn) / (last - turn)
    return _cosine(peak, first / END_DIVISOR, fraction), _cosine(top, end, fraction)


def _cosine(start: float, end: float, fraction: float) -> float:
    return end + (start - end) / 2.0 * (math.cos(math.pi * fraction) + 1)
