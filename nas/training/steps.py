"""Training steps, which run eagerly or as a CUDA graph that replays all operations in one call.

A GPU runs each operation of a small model in less time than Python needs to launch it. A CUDA graph
is captured while a step runs: it contains the GPU's operations but no Python code. A replay uses
the same addresses of tensors and the same Python numbers as the captured step. Therefore:

- the indices of a batch lie in one tensor, into which the next indices are copied before a replay;
- dropout and augmentation draw from the device's generator, which torch advances at each replay;
- sums of losses stay in tensors on the device, for which Python waits at the end of an epoch;
- the optimiser's step, in which the learning rate changes, runs outside of the graph;
- a few warm-up steps on a copy of the model load and choose kernels before the capture;
- a batch that is smaller than the captured batch, at most one in an epoch, runs eagerly.

A step cannot be captured if it waits for a result or keeps state in Python. Such a step always runs
eagerly, with the same results, and the reason is recorded.
https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.captures import CudaGraphs
from nas.common.text import first_line
from nas.tasks import Examples, ModelTask
from nas.training.optimizers import ScheduledOptimizer

MAX_REASON: Final = 200  # characters of an error
PLAIN: Final = (bool, int, float, str, type(None))


class Diverged(Exception):  # noqa: N818 - an outcome, not a fault
    """Raised if the training loss, or a metric on validation examples, is not finite."""


@dataclass
class TrainStep:
    """A training step: a call computes the gradients of a batch, ``optimizer`` updates the weights.

    On a GPU, where Python would wait for a loss, only ``mean_loss`` checks it, once an epoch.
    """

    model: nn.Module
    task: ModelTask
    examples: Examples
    precision: str
    device: torch.device
    optimizer: ScheduledOptimizer

    def __post_init__(self) -> None:
        # The sum of losses and the number of targets.
        self.totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.checks_loss = self.device.type == "cpu"

    def __call__(self, chosen: Tensor) -> None:
        """Compute the gradients of the mean loss of the examples ``chosen``, indices (b,).

        Diverged is raised if the loss is not finite and ``checks_loss`` is set.
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

    def mean_loss(self) -> float:
        """Return the mean loss per target since the last call; Diverged if it is not finite."""
        total, targets = self.totals.tolist()
        self.totals.zero_()
        _check_finite(total / targets)
        return float(total / targets)


def mixed(device: torch.device, precision: str) -> torch.autocast:
    """Return a context for mixed precision if ``precision`` is bfloat16, else without effect."""
    # A graph must not cache casts of weights, which change from step to step.
    is_cached = device.type == "cpu"
    enabled = precision == "bfloat16"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=is_cached)


def _check_finite(loss: float) -> None:
    if not math.isfinite(loss):
        raise Diverged(f"the training loss is {loss}")


def graphs_on(device: torch.device) -> CudaGraphs | None:
    """Return what captures steps on ``device`` as CUDA graphs; None for a processor."""
    return CudaGraphs(device) if device.type == "cuda" else None


class Steps:
    """A training step that is repeated, as a CUDA graph if possible.

    Unless ``graphs`` is None, the graph is captured when the first whole batch, of ``size``
    examples, is run. ``execution`` says how the steps run: "cuda graph", "cpu, eager", or "cuda,
    eager" with the reason why there is no graph.
    """

    def __init__(self, work: TrainStep, size: int, graphs: CudaGraphs | None) -> None:
        self.work, self.size, self._graphs = work, size, graphs
        self._replay: Callable[[], None] | None = None
        self._chosen: Tensor | None = None
        self._gradients: list[tuple[Tensor, Tensor | None]] = []
        self.execution = f"{work.device.type}, eager" + (": no whole batch" if graphs else "")

    def __call__(self, chosen: Tensor) -> None:
        """Run one step on the examples ``chosen``, indices (b,)."""
        is_whole = len(chosen) == self.size
        if self._graphs is not None and is_whole and self._chosen is None:
            self._capture(chosen, self._graphs)
        if is_whole and self._replay is not None and self._chosen is not None:
            self._chosen.copy_(chosen)
            self._replay()
            for weight, gradient in self._gradients:  # an eager step binds other tensors
                weight.grad = gradient
        else:
            self.work(chosen)
        self.work.optimizer.step()  # never in the graph

    def _capture(self, chosen: Tensor, graphs: CudaGraphs) -> None:
        """Capture the step, or record why this failed; neither weights nor generators change."""
        work, static = self.work, chosen.clone()
        self._chosen = static
        with torch.random.fork_rng([work.device] if work.device.type == "cuda" else []):
            try:
                tried = replace(work, model=copy.deepcopy(work.model))
                before = _python_state(tried.model)
                graphs.warm_up(lambda: tried(static))
                if replaced := _replaced(before, _python_state(tried.model)):
                    raise RuntimeError(f"a step replaces {', '.join(replaced)}")
                self._replay = graphs.capture(lambda: work(static))
                self._gradients = [(w, w.grad) for w in work.model.parameters()]
                self.execution = "cuda graph"
            except Exception as last:  # an error of the work itself is raised again in eager mode
                error: BaseException = last
                while error.__context__ is not None:
                    error = error.__context__
                reason = f"{type(error).__name__}: {first_line(error)}"[:MAX_REASON]
                self.execution = f"{work.device.type}, eager: capture failed ({reason})"


def _python_state(model: nn.Module) -> dict[str, Any]:
    return {
        f"{name}.{key}".lstrip("."): value
        for name, module in model.named_modules()
        for key, value in (vars(module) | module._buffers).items()
    }


def _replaced(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of the values that a step changed, as a replay of its graph would not."""

    def is_same(old: Any, new: Any) -> bool:
        return old is new or (isinstance(new, PLAIN) and type(old) is type(new) and old == new)

    return sorted(
        name for name in before | after if not is_same(before.get(name, ...), after.get(name, ...))
    )
