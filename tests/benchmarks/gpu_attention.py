"""Blocks at long sequences on a GPU, against torch's fused attention.

Forward and backward of one sequence in bfloat16: each genome's block eagerly and compiled, and
the same projections around F.scaled_dot_product_attention. What does not fit into memory, or
cannot run, is shown as such.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.compiler import build_attention
from tests.benchmarks.elapsed import interleaved_on, median_of, print_figures, ratio_of, wait_for
from tests.benchmarks.figures import Figure

if TYPE_CHECKING:
    from nas.genome import Genome

DIM, HEADS = 512, 8
TOKENS: Final = (1024, 2048, 4096, 8192, 16384)


def attention(
    genomes: Mapping[str, Genome],
    device: torch.device,
    rounds: int,
    lengths: Sequence[int] = TOKENS,
    *,
    is_compiled: bool = True,
) -> list[Figure]:
    """Milliseconds of forward and backward in bfloat16, and times as long as fused attention."""
    print(f"\none sequence, dim {DIM}, {HEADS} heads, bfloat16: ms forward and backward, peak MiB")
    figures = []
    for tokens in lengths:
        forms: dict[str, nn.Module] = {"F.scaled_dot_product_attention": Fused()}
        for name, genome in genomes.items():
            block = build_attention(genome, DIM, HEADS)
            forms[name] = block
            if is_compiled:
                again = build_attention(genome, DIM, HEADS)
                fast = torch.compile(again.forward, dynamic=False)
                again.forward = fast
                forms[f"{name}, compiled"] = again
        figures += compare(forms, tokens, device, rounds)
    return figures


class Fused(nn.Module):
    """The projections of standard attention around torch's fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.wqkv = nn.Linear(DIM, 3 * DIM, bias=False)
        self.wo = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        streams = self.wqkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        merged = F.scaled_dot_product_attention(*streams).transpose(1, 2).flatten(2)
        out: Tensor = self.wo(merged)
        return out


def compare(
    forms: Mapping[str, nn.Module], tokens: int, device: torch.device, rounds: int
) -> list[Figure]:
    """One length: the forms that fit, in turn."""
    works: dict[str, Callable[[], None]] = {}
    for name, form in forms.items():
        work = _pass(form, tokens, device)
        try:
            start = time.perf_counter()
            work()
            wait_for(device)
            first = time.perf_counter() - start
            mib = _peak_mib(work, device)
        except Exception as error:  # to be shown in its row
            _forget(device)
            what = (
                "out of memory"
                if isinstance(error, torch.OutOfMemoryError)
                else f"{type(error).__name__}: {error}"
            )
            print(f"  {tokens:6,} tokens  {name:34}{what.splitlines()[0][:60]}")
            continue
        works[name] = work
        print(f"  {tokens:6,} tokens  {name:34}{mib:10.1f} MiB, first call {first:.1f} s")
    samples = interleaved_on(works, rounds, device)
    base = next(iter(forms))
    figures = []
    for name, taken in samples.items():
        label = f"{name}, {tokens} tokens"
        figures.append(median_of(label, [1e3 * s for s in taken], "ms"))
        if name != base and base in samples:
            figures.append(ratio_of(f"{label} / fused", taken, samples[base]))
    print_figures(figures)
    return figures


def _pass(form: nn.Module, tokens: int, device: torch.device) -> Callable[[], None]:
    form.to(device, torch.bfloat16)
    x = torch.randn(1, tokens, DIM, device=device, dtype=torch.bfloat16, requires_grad=True)
    wanted, above = [x, *form.parameters()], torch.ones_like(x)

    def work() -> None:
        torch.autograd.grad(form(x), wanted, above, allow_unused=True)

    return work


def _peak_mib(work: Callable[[], None], device: torch.device) -> float:
    """The most that one pass holds beyond weights and input; only a GPU is asked."""
    if device.type == "cpu":
        return 0.0
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _forget(device: torch.device) -> None:
    """What a pass left behind that did not fit."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
