"""Run repeated steps eagerly or as a CUDA graph, which replays all operations in one call.

A training step of a small model has some hundred operations. The GPU runs each of them in less time
than Python needs to launch it. A CUDA graph launches all operations at once. It contains the GPU's
operations and no Python code, with the addresses and numbers of its capture. Therefore:

- the indices of a batch lie in one tensor, into which the next indices are copied before a replay;
- dropout and augmentation draw from the device's generator, which torch advances at each replay;
- the optimiser's step, whose numbers change, runs outside of the graph;
- a few warm-up steps on a copy of the model load and choose kernels before the capture;
- a batch of another size runs eagerly.

A step cannot be captured if it waits for a result or keeps state in Python. Such steps always run
eagerly, with the same results, and the reason is recorded.
https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn

from nas.common.interrupts import garbage_collection_paused
from nas.training.steps import Work

WARM_UPS: Final = 3
STEPS_AHEAD: Final = 64
"""Steps that Python may launch before it waits for the GPU and checks the time limit again."""
MAX_REASON: Final = 200  # characters of an error
PLAIN: Final = (bool, int, float, str, type(None))


def graphs_on(device: torch.device) -> CudaGraphs | None:
    """Return an object that captures steps on a GPU; None on a processor."""
    return CudaGraphs(device) if device.type == "cuda" else None


class Steps:
    """Repeated training or evaluation steps, captured at the first whole batch if possible.

    Args:
        work: the step to repeat.
        size: number of examples in a whole batch; the last batch of an epoch may have fewer.
        graphs: captures the step; None runs each step eagerly.

    Attributes:
        execution: how the steps run, as text for the record: "cuda graph", or "cpu, eager".
        has_failed: whether the capture failed; ``execution`` contains the reason.
    """

    def __init__(self, work: Work, size: int, graphs: CudaGraphs | None) -> None:
        self.work, self.size, self._graphs = work, size, graphs
        self._replay: Callable[[], None] | None = None
        self._chosen: Tensor | None = None
        self._gradients: list[tuple[Tensor, Tensor | None]] = []
        self.has_failed = False
        self.execution = f"{work.device.type}, eager" + (": no whole batch" if graphs else "")

    def __call__(self, chosen: Tensor) -> None:
        """Run one step on the examples with the indices ``chosen``, shape (b,)."""
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
        """Capture the step, or record why that failed; weights and generators do not change."""
        work, static = self.work, chosen.clone()
        self._chosen = static
        with torch.random.fork_rng([work.device] if work.device.type == "cuda" else []):
            try:
                tried = replace(work, model=copy.deepcopy(work.model))
                before = _python_state(tried.model)
                graphs.warm_up(lambda: tried(static), WARM_UPS)
                if replaced := _replaced(before, _python_state(tried.model)):
                    raise RuntimeError(f"a step replaces {', '.join(replaced)}")
                self._replay = graphs.capture(lambda: work(static))
                self._gradients = [(w, w.grad) for w in work.model.parameters()]
                self.execution = "cuda graph"
            except Exception as error:  # an error of the work itself is raised again in eager mode
                self.has_failed = True
                reason = reason_of(error)
                self.execution = f"{work.device.type}, eager: capture failed ({reason})"


class CudaGraphs:
    """Captures torch's CUDA graphs, on a stream other than the device's current one."""

    broken: Final[list[torch.cuda.CUDAGraph]] = []
    """Graphs whose capture failed. They are kept because torch's allocator may use them later."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def warm_up(self, work: Callable[[], None], times: int) -> None:
        """Run ``work`` several times on the stream of captures, after the current stream.

        Raises:
            RuntimeError: in the last run, ``work`` waited for the GPU, which no graph can contain.
                A capture that fails keeps its memory, so the wait is found before a capture.
        """
        stream, current = _side_stream(self._device), torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                for _ in range(times - 1):  # the first runs wait while kernels are loaded
                    work()
                with _waits_are_errors():
                    work()
        finally:
            current.wait_stream(stream)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture ``work`` in a graph with separate memory; return the function that replays it."""
        graph = torch.cuda.CUDAGraph()
        index = self._device.index
        generator = torch.cuda.default_generators[
            torch.cuda.current_device() if index is None else index
        ]
        state = generator.clone_state()
        try:
            with (
                garbage_collection_paused(),  # freeing an older graph would break the capture
                torch.cuda.graph(graph, stream=_side_stream(self._device)),
            ):
                work()
        except BaseException:
            self.broken.append(graph)
            try:
                torch.empty(1, device=self._device).uniform_()
            except RuntimeError:  # torch <= 2.10: a failed capture leaves the generator unusable
                generator.graphsafe_set_state(state)
            raise
        return graph.replay


@contextmanager
def _waits_are_errors() -> Iterator[None]:
    """Let an operation that waits for the GPU raise RuntimeError."""
    mode = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def _python_state(model: nn.Module) -> dict[str, Any]:
    """Return attributes and buffers of all modules by name, without the contents of lists."""
    return {
        f"{name}.{key}".lstrip("."): value
        for name, module in model.named_modules()
        for key, value in (vars(module) | module._buffers).items()
    }


def _replaced(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return names whose value was replaced; a graph captures only in-place changes of tensors."""

    def is_same(old: Any, new: Any) -> bool:
        return old is new or (isinstance(new, PLAIN) and type(old) is type(new) and old == new)

    return sorted(
        name for name in before | after if not is_same(before.get(name, ...), after.get(name, ...))
    )


def reason_of(error: BaseException) -> str:
    """Return the first error of a chain of exceptions, in one line."""
    while error.__context__ is not None:
        error = error.__context__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:MAX_REASON]


def wait_on(device: torch.device) -> None:
    """Wait for a GPU to finish all launched operations, without keeping a core busy."""
    if device.type == "cuda":
        end = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        end.record(torch.cuda.current_stream(device))
        end.synchronize()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of captures; a process has one, since each stream keeps megabytes."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
