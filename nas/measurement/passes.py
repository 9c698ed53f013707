"""One pass of one attention block: how long it takes, and how much memory it holds at most."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import torch
from torch.profiler import ProfilerActivity, profile

from nas.compiler import build_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from nas.genome import Genome

Pass = Literal["forward", "forward_backward"]
PASSES: Final[tuple[Pass, ...]] = ("forward", "forward_backward")

# A pass shorter than this is repeated: the first call after other work finds nothing in caches.
SAMPLE_SECONDS: Final = 0.02


@dataclass(frozen=True)
class Case:
    """One mechanism at one length, passed through in one way.

    Attributes:
        direction: ``forward`` keeps nothing for gradients; ``forward_backward`` takes those of
            the input and of every weight.
        device: ``cpu``, ``cuda`` or ``cuda:<index>``.
    """

    genome: Genome
    dim: int
    heads: int
    tokens: int
    direction: Pass
    device: str = "cpu"
    is_causal: bool = False


def milliseconds(case: Case) -> float:
    """The time of one pass: the fastest of those that fill ``SAMPLE_SECONDS``, at least one."""
    work = prepare(case)
    end = time.perf_counter() + SAMPLE_SECONDS
    best = seconds(work, case.device)
    while time.perf_counter() < end:
        best = min(best, seconds(work, case.device))
    return 1000 * best


def peak_bytes(case: Case) -> int:
    """The most that one pass holds at once of what PyTorch gave out, beyond weights and input.

    Intermediate results, kernels' buffers and gradients count; what a library allocates past
    PyTorch's allocator does not.
    """
    work = prepare(case)
    return _peak_of_gpu(work, case.device) if case.device != "cpu" else _peak_of_processor(work)


def prepare(case: Case) -> Callable[[], None]:
    """The pass as a function of nothing; building the block and drawing the input is not in it."""
    block = _block(case.genome, case.dim, case.heads, case.device)
    x = torch.randn(1, case.tokens, case.dim, device=case.device)
    if case.direction == "forward":

        def forward() -> None:
            with torch.no_grad():
                block(x, is_causal=case.is_causal)

        return forward
    gradient, wanted = torch.ones_like(x), [x.requires_grad_(), *block.parameters()]

    def forward_backward() -> None:
        # A weight that only shifts what softmax ignores may have no part in the result.
        torch.autograd.grad(block(x, is_causal=case.is_causal), wanted, gradient, allow_unused=True)

    return forward_backward


@lru_cache(maxsize=64)
def _block(genome: Genome, dim: int, heads: int, device: str) -> nn.Module:
    torch.manual_seed(0)
    return build_attention(genome, dim, heads).to(device)


def seconds(work: Callable[[], None], device: str) -> float:
    """How long something takes, once.

    Elapsed time on a GPU; processor time else, which leaves out when others had the core.
    """
    if device == "cpu":
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _peak_of_gpu(work: Callable[[], None], device: str) -> int:
    work()  # libraries take their workspaces at the first call and keep them
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device) - before)


def _peak_of_processor(work: Callable[[], None]) -> int:
    """The profiler's record of every allocation, added up; exact where resident pages are not."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    assert changes, "an attention block allocates its result"
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return int(peak)
