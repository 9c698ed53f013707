"""Measure the time of attention blocks, with one thread and in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import nn

from nas.common.captures import CudaGraphs
from nas.genome import ModelSizes

LEAST_ROUNDS, MOST_ROUNDS = 2, 10
REPLAYS: Final = 10  # of a CUDA graph between two events; their resolution is half a microsecond


class Passes:
    """Forward and backward passes of blocks on one random batch, and their times.

    On a CPU the time is the processor time of this process; on CUDA it is the device time of a CUDA
    graph, as in training.
    """

    def __init__(
        self, sizes: ModelSizes, batch: int, *, precision: str, device: str, is_causal: bool
    ) -> None:
        self.device, self.precision, self.is_causal = torch.device(device), precision, is_causal
        generator = torch.Generator().manual_seed(0)
        shape = (batch, sizes.tokens, sizes.dim)
        self.x, self.above = (
            torch.randn(shape, generator=generator).to(self.device) for _ in range(2)
        )
        self._graphs: CudaGraphs | None = None
        if self.device.type == "cuda":  # no result is read, so that graphs can share their memory
            self._graphs = CudaGraphs(self.device, torch.cuda.graph_pool_handle())

    def of(self, block: nn.Module, count: int | None = None) -> Callable[[], None]:
        """Return a function that runs a forward and backward pass on ``count`` sequences.

        RuntimeError is raised if a GPU cannot capture the pass as a CUDA graph.
        """
        block = block.to(self.device).train()
        x = self.x[:count].detach().requires_grad_()
        above = self.above[:count]
        inputs = [x, *block.parameters()]
        is_short = self.precision == "bfloat16"

        def run() -> None:
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_short):
                out = block(x, is_causal=self.is_causal)
            # Accumulation into .grad would add operations that a training does not have.
            torch.autograd.grad(out, inputs, above.to(out.dtype), allow_unused=True)

        if self._graphs is None:
            return run
        self._graphs.warm_up(run)
        replay = self._graphs.capture(run)

        def replayed(kept: object = run) -> None:  # keeps alive the tensors that the graph reads
            replay()

        return replayed


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds that a call of ``work`` takes: processor time, on CUDA device time.

    On CUDA the result is the mean of ``REPLAYS`` calls.
    """
    if device.type == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(REPLAYS):
        work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / REPLAYS


def in_turns(
    timers: Sequence[Callable[[], float]], seconds: float, most: int = MOST_ROUNDS
) -> list[list[float]]:
    """Return the times of each timer, (timers, rounds): in each round all timers take turns.

    A first round is not counted. After two rounds, no further round starts once ``seconds`` of
    processor time have passed, or after ``most`` rounds.
    """
    for timer in timers:
        timer()
    rounds: list[list[float]] = []
    begin = time.process_time()
    for number in range(most):
        if number >= LEAST_ROUNDS and time.process_time() - begin >= seconds:
            break
        rounds.append([timer() for timer in timers])
    return [[*times] for times in zip(*rounds, strict=True)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread inside the ``with`` block, as in training."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
