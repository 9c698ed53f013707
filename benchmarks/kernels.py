"""Compare each mechanism's block with its naive form: forward and backward, one thread, float32.

The naive form is plain einsum code that materialises all pairs and hidden units (naive.py). Each
mechanism runs in a separate process: in one process, the naive form would reuse freed memory and
save page faults, which take a fifth to a half of its time at 512 tokens.

Peak memory is the memory that PyTorch allocates for a forward and a backward pass beyond weights
and input. It is the same in each run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.figures import Figure, interleaved, ratio
from benchmarks.naive import naive, named_with_naive_form
from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS

DIM: Final = 128
HEADS: Final = 8
# Batch and tokens: part of a training step on small images, and one long sequence.
SIZES: Final = ((32, 65), (1, 512))
SAMPLE_SECONDS: Final = 0.02
# Tokens and mechanisms of the benchmark of chunks. KDA's pairs with 2,048 tokens need 8 GB.
CHUNKED: Final = 2048
CHUNKED_MECHANISMS: Final = ("retnet", "mamba2", "deltanet", "gated_deltanet")


def kernels(options: argparse.Namespace) -> list[Figure]:
    """Return the speed-up of each mechanism over its naive form; print times and peak memory."""
    figures = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, spawn, torch.set_num_threads, (1,), max_tasks_per_child=1
    ) as processes:
        for batch, tokens in SIZES:
            print(
                f"\nbatch {batch}, {tokens} tokens, dim {DIM}, {HEADS} heads: forward and "
                f"backward, fastest of {options.rounds} interleaved rounds, peak memory beyond "
                f"weights and input\n  {'':26}{'ms':>9}{'naive':>9}{'ratio':>8}  "
                f"{'middle half':15}{'MiB':>8}{'naive':>8}",
                flush=True,
            )
            arguments = [(name, batch, tokens, options.rounds) for name in named_with_naive_form()]
            figures += processes.map(_compare, *zip(*arguments, strict=True))
    return figures


def chunks(options: argparse.Namespace) -> list[Figure]:
    """Return the speed-up of chunks over all pairs, of mechanisms with gates and the delta rule.

    All pairs is the reference interpreter, which calls one primitive after another.
    """
    print(
        f"\n{CHUNKED:,} tokens, causal, dim {DIM}, {HEADS} heads: forward and backward, fastest of "
        f"{options.rounds} interleaved rounds, peak memory beyond weights and input\n"
        f"  {'':18}{'ms':>9}{'pairs':>9}{'ratio':>8}  {'middle half':15}{'MiB':>8}{'pairs':>8}"
    )
    figures = []
    for name in CHUNKED_MECHANISMS:
        torch.manual_seed(0)
        genome = MECHANISMS[name].genome
        block = build_attention(genome, DIM, HEADS)
        pairs = build_attention(genome, DIM, HEADS, reference=True)
        x = torch.randn(1, CHUNKED, DIM, requires_grad=True)
        works = {
            form: _pass(partial(module, is_causal=True), x, [x, *module.parameters()])
            for form, module in (("block", block), ("pairs", pairs))
        }
        mib = [peak_mib(work) for work in works.values()]
        samples = interleaved(works, options.rounds, SAMPLE_SECONDS)
        figure = ratio(f"{name}: pairs / chunks", samples["pairs"], samples["block"])
        block_ms, pairs_ms = (1e3 * min(samples[form]) for form in ("block", "pairs"))
        print(
            f"  {name:18}{block_ms:9.1f}{pairs_ms:9.1f}{figure.value:8.2f}  {figure.spread:15}"
            f"{mib[0]:8.0f}{mib[1]:8.0f}",
            flush=True,
        )
        figures.append(figure)
    return figures


def peak_mib(work: Callable[[], object]) -> float:
    """Return the peak memory of a call in MiB, from the profiler's record of allocations.

    Unlike the resident memory of the process, this is exact.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no message at each start of the profiler
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak / 2**20


def _compare(name: str, batch: int, tokens: int, rounds: int) -> Figure:
    torch.manual_seed(0)
    block = build_attention(MECHANISMS[name].genome, DIM, HEADS)
    x = torch.randn(batch, tokens, DIM, requires_grad=True)
    weights = [x, *block.parameters()]
    works = {
        "block": _pass(block, x, weights),
        "naive": _pass(lambda x: naive(block, x), x, weights),
    }
    mib = [peak_mib(work) for work in works.values()]
    samples = interleaved(works, rounds, SAMPLE_SECONDS)
    figure = ratio(f"{name}, {tokens} tokens: naive / block", samples["naive"], samples["block"])
    block_ms, naive_ms = (1e3 * min(samples[form]) for form in ("block", "naive"))
    print(
        f"  {name:26}{block_ms:9.2f}{naive_ms:9.2f}{figure.value:8.2f}  {figure.spread:15}"
        f"{mib[0]:8.1f}{mib[1]:8.1f}",
        flush=True,
    )
    return figure


def _pass(
    form: Callable[[Tensor], Tensor], x: Tensor, inputs: Sequence[Tensor]
) -> Callable[[], None]:
    gradient = torch.ones_like(x)

    def work() -> None:
        # Some weights do not affect the output, such as a bias that softmax cancels.
        torch.autograd.grad(form(x), inputs, gradient, allow_unused=True)

    return work
