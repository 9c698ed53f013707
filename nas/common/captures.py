"""Capture work on a GPU as a CUDA graph, which replays all operations of the work in one call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import torch

from nas.common.system import garbage_collection_paused

WARM_UPS: Final = 3  # runs before a capture, in which libraries load and choose kernels


class CudaGraphs:
    """Captures CUDA graphs on a CUDA stream that is used for nothing else.

    With a ``pool`` (``torch.cuda.graph_pool_handle``) all graphs share its memory, so that a replay
    overwrites the results of other graphs; else each has its own memory.
    """

    # Graphs whose capture failed. They are kept because torch's allocator may use them later.
    broken: Final[list[torch.cuda.CUDAGraph]] = []

    def __init__(self, device: torch.device, pool: Any = None) -> None:
        self._device, self._pool = device, pool

    def warm_up(self, work: Callable[[], None]) -> None:
        """Run ``work`` ``WARM_UPS`` times; raise RuntimeError if the last waited for the GPU."""
        stream, current = _side_stream(self._device), torch.cuda.current_stream(self._device)
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS - 1):  # the first runs wait while kernels are loaded
                    work()
                with _waits_are_errors():
                    work()
        finally:
            current.wait_stream(stream)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture ``work`` in a new CUDA graph, and return its replay."""
        graph = torch.cuda.CUDAGraph()
        index = self._device.index
        generator = torch.cuda.default_generators[
            torch.cuda.current_device() if index is None else index
        ]
        state = generator.clone_state()
        try:
            with (
                garbage_collection_paused(),  # freeing an older graph would break the capture
                torch.cuda.graph(graph, pool=self._pool, stream=_side_stream(self._device)),
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
    mode = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
