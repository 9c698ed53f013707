"""How work is repeated: call by call, or as a CUDA graph that replays a whole step in one call.

A training step of a small model is some hundred operations that each take the GPU less time than
Python takes to ask for them. A CUDA graph asks once and replays. It holds what a GPU does and
nothing of what Python does, with the addresses and the numbers of the capture:

- the examples of a batch are named by one tensor, the same in every replay, into which the next
  batch is copied first; the graph itself gathers them (their data are on the device already);
- the optimiser's schedule lies on the device (see optimizers.py), dropout and augmentation draw
  from the device's generator, which torch moves on with each replay;
- before the capture the work is done a few times to load and choose kernels, and all that it
  changed is brought back (see snapshot.py);
- a batch of another size is done call by call.

https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs. What cannot be captured (work
that waits for a result, or counts in Python) is done call by call throughout, with the same
results, and the reason is kept.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final

import torch

from nas.training.snapshot import Snapshot, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from nas.training.steps import Work

WARM_UPS: Final = 3
STEPS_AHEAD: Final = 64
"""How far the host may be before a GPU; without a bound, a limit on time is looked at too early."""


def graphs_on(device: torch.device) -> CudaGraphs | None:
    """What captures work on this device, if anything does."""
    return CudaGraphs(device) if device.type == "cuda" else None


class Steps:
    """Work as it is repeated: call by call, or captured at its first whole batch and replayed.

    Args:
        size: examples in a whole batch; the last of an epoch may have fewer.
        graphs: capture; None where there are none.

    Attributes:
        execution: how it is done, in words, as an evaluation records it.
        has_failed: it was to be done otherwise; ``execution`` says why it is not.
    """

    def __init__(self, work: Work, size: int, graphs: CudaGraphs | None) -> None:
        self.work, self.size, self._graphs = work, size, graphs
        self._replay: Callable[[], None] | None = None
        self._chosen: Tensor | None = None
        self._is_tried = self.has_failed = False
        self.execution = f"{work.device.type}, eager" + (": no whole batch" if graphs else "")

    def __call__(self, chosen: Tensor) -> None:
        """Do it with these examples."""
        is_whole = len(chosen) == self.size
        if self._graphs is not None and is_whole and not self._is_tried:
            self._capture(chosen, self._graphs)
        if not is_whole or self._replay is None or self._chosen is None:
            self.work(chosen)
            return
        self._chosen.copy_(chosen)
        self._replay()

    def _capture(self, chosen: Tensor, graphs: CudaGraphs) -> None:
        """Have a graph, or the reason why there is none; nothing else is changed."""
        self._is_tried = True
        self._chosen = fixed = chosen.clone()
        before = Snapshot(self.work.model, self.work.state, self.work.device)

        def work() -> None:
            self.work(fixed)

        try:
            graphs.warm_up(work, WARM_UPS)
            if replaced := before.replaced():
                raise RuntimeError(f"a step replaces {', '.join(replaced)}")
            before.restore()
            self._replay = graphs.capture(work)
            self.execution = "cuda graph"
        except Exception as error:  # call by call it does not matter, or shows again
            self.has_failed = True
            self.execution = f"{self.work.device.type}, eager: capture failed ({reason_of(error)})"
        # Python that ran in the capture may have counted.
        before.restore()


class CudaGraphs:
    """torch's graphs, captured on one side stream of the device."""

    broken: Final[list[torch.cuda.CUDAGraph]] = []
    """Graphs whose capture failed. torch's allocator may ask them later; they must not die."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def warm_up(self, work: Callable[[], None], times: int) -> None:
        """Do work on the stream of captures, which waits for the present one, and it for that."""
        stream, present = _side_stream(self._device), torch.cuda.current_stream(self._device)
        stream.wait_stream(present)
        try:
            with torch.cuda.stream(stream):
                for _ in range(times):
                    work()
        finally:
            present.wait_stream(stream)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work as a graph of its own memory; gives its replay."""
        graph = torch.cuda.CUDAGraph()
        generator = _generator_of(self._device)
        sound = generator.clone_state()
        stream = _side_stream(self._device)
        try:
            with _without_collection(), torch.cuda.graph(graph, stream=stream):
                work()
        except BaseException:
            self.broken.append(graph)
            try:
                torch.empty(1, device=self._device).uniform_()
            except RuntimeError:  # up to torch 2.10 the generator then refuses to be used
                generator.graphsafe_set_state(sound)
            raise
        return graph.replay


def wait_on(device: torch.device) -> None:
    """Let a GPU come to the end of what it was asked for, without keeping a core busy."""
    if device.type == "cuda":
        end = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        end.record(torch.cuda.current_stream(device))
        end.synchronize()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One a process: each stream that multiplies matrices keeps a workspace of megabytes."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _generator_of(device: torch.device) -> torch.Generator:
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Python collects no garbage within: to free an older graph would break the capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
