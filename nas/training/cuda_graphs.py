"""Run training steps eagerly or as a CUDA graph, which replays all operations in one call.

A training step of a small model has some hundred operations. The GPU runs each of them in less time
than Python needs to launch it. A CUDA graph launches all operations at once. A graph is captured
while a step runs: it contains the GPU's operations but no Python code. A replay uses the same
addresses of tensors and the same Python numbers as the captured step. Therefore:

- the indices of a batch lie in one tensor, into which the next indices are copied before a replay;
- dropout and augmentation draw from the device's generator, which torch advances at each replay;
- the optimiser's step, in which the learning rate changes, runs outside of the graph;
- a few warm-up steps on a copy of the model load and choose kernels before the capture;
- a batch that is smaller than the captured batch runs eagerly. There is at most one in an epoch; a
  second capture, with its warm-ups, would take longer than a few such batches.

A step cannot be captured if it waits for a result or keeps state in Python. Such a step always runs
eagerly, with the same results, and the reason is recorded.
https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.captures import CudaGraphs
from nas.common.text import first_line
from nas.training.steps import TrainStep

STEPS_AHEAD: Final = 64
"""Steps that Python may launch before it waits for the GPU and checks the time limit again."""
MAX_REASON: Final = 200  # characters of an error
PLAIN: Final = (bool, int, float, str, type(None))


def graphs_on(device: torch.device) -> CudaGraphs | None:
    """Return what captures steps on ``device`` as CUDA graphs; None for a processor."""
    return CudaGraphs(device) if device.type == "cuda" else None


class Steps:
    """A training step that is repeated, as a CUDA graph if possible.

    The graph is captured when the first whole batch, of ``size`` examples, is run. ``execution``
    says how the steps run: "cuda graph", "cpu, eager", or "cuda, eager" with the reason why there
    is no graph.

    Args:
        graphs: captures the step; None runs each step eagerly.
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
        self.work.finish()

    def _capture(self, chosen: Tensor, graphs: CudaGraphs) -> None:
        """Capture the step as a CUDA graph, or record why the capture failed.

        Neither the weights nor the random generators change.
        """
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


def wait_on(device: torch.device) -> None:
    """Wait for a GPU to finish all launched operations, without keeping a core busy."""
    if device.type == "cuda":
        end = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        end.record(torch.cuda.current_stream(device))
        end.synchronize()
