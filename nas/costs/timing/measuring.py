"""Measure the time of attention blocks, with one thread and in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from torch import nn

from nas.costs.decoding import Decoder
from nas.genome import ModelSizes

WARM_UPS: Final = 3
LEAST_ROUNDS, MOST_ROUNDS = 2, 10
DECODED: Final = 3  # steps in a row


class Passes:
    """Forward and backward passes of blocks on one random batch, and their times.

    On a CPU the time is the processor time of this process, on which other processes have little
    effect. On CUDA it is the device time of a CUDA graph, as in training.
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
        # Graphs are replayed in turn, so that they share their memory.
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    def of(self, block: nn.Module, count: int | None = None) -> Callable[[], None]:
        """Return a function that runs a forward and backward pass on ``count`` sequences."""
        block = block.to(self.device).train()
        x = self.x[:count].detach().requires_grad_()
        above = self.above[:count]

        def run() -> None:
            with self._autocast():
                out = block(x, is_causal=self.is_causal)
            out.backward(above.to(out.dtype))

        return run if self.device.type == "cpu" else self._recorded(run)

    def decoding_seconds(self, block: nn.Module, tokens: int) -> float:
        """Return the seconds to decode one token of one sequence after ``tokens`` tokens."""
        decoder, x = Decoder(block.to(self.device).eval(), context=tokens), self.x[:1, :1]
        decoder.step(x)
        times = []
        for _ in range(DECODED):
            decoder.fill_cache(tokens)
            times.append(self.seconds(lambda: decoder.step(x)))
        return min(times)

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the seconds that one call of ``work`` takes."""
        if self.device.type == "cpu":
            start = time.process_time()
            work()
            return time.process_time() - start
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(self.device)
        begin.record()
        work()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def _recorded(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replays ``work`` as a CUDA graph; else return ``work`` itself."""
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                work()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._pool):
                work()
        except RuntimeError:
            return work

        def replay(kept: object = work) -> None:  # keeps alive the tensors that the graph reads
            graph.replay()

        return replay

    def _autocast(self) -> torch.autocast:
        is_short = self.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_short)


def fastest(timers: Sequence[Callable[[], float]], seconds: float) -> list[float]:
    """Return each timer's shortest time over as many rounds as fit into ``seconds``, two to ten.

    Timers take turns, so that noise affects all of them equally.
    """
    for timer in timers:
        timer()
    rounds: list[list[float]] = []
    begin = time.process_time()
    for number in range(MOST_ROUNDS):
        if number >= LEAST_ROUNDS and time.process_time() - begin >= seconds:
            break
        rounds.append([timer() for timer in timers])
    return [min(times) for times in zip(*rounds, strict=True)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread inside the ``with`` block, as in training."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
