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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.interleaving import interleaved, ratio
from benchmarks.naive import naive, named_with_naive_form
from benchmarks.rows import Row
from nas.compiler import build_attention
from nas.genome.mechanisms import MECHANISMS

DIM: Final = 128
HEADS: Final = 8
# Batch and tokens: part of a training step on small images, and one long sequence.
SIZES: Final = ((32, 65), (1, 512))
SAMPLE_SECONDS: Final = 0.02
# One long sequence in chunks of 64 tokens. KDA's pairs with 2,048 tokens need 8 GB.
CHUNKED: Final = 2048
CHUNKED_MECHANISMS: Final = ("retnet", "mamba2", "deltanet", "gated_deltanet")


def kernels(options: argparse.Namespace) -> Iterator[Row]:
    """Yield time and peak memory of each mechanism's block and of its naive form."""
    jobs = [(name, *size) for size in SIZES for name in named_with_naive_form()]
    jobs += [(name, 1, CHUNKED) for name in CHUNKED_MECHANISMS]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, spawn, torch.set_num_threads, (1,), max_tasks_per_child=1
    ) as processes:
        yield from processes.map(partial(compare, options.rounds), *zip(*jobs, strict=True))


def compare(rounds: int, name: str, batch: int, tokens: int) -> Row:
    """Compare one mechanism's block with its naive form, forward and backward.

    The naive form of mechanisms with gates or the delta rule, which are causal here, is the
    reference interpreter: it calls one primitive after another, on all pairs.
    """
    torch.manual_seed(0)
    genome, is_causal = MECHANISMS[name].genome, name in CHUNKED_MECHANISMS
    block = build_attention(genome, DIM, HEADS)
    plain: Callable[[Tensor], Tensor] = partial(naive, block)
    if is_causal:
        reference = build_attention(genome, DIM, HEADS, reference=True)
        reference.load_state_dict(block.state_dict())
        plain = partial(reference, is_causal=True)
    x = torch.randn(batch, tokens, DIM, requires_grad=True)
    works = {
        "block": _pass(partial(block, is_causal=is_causal), x, [x, *block.parameters()]),
        "naive": _pass(plain, x, [x, *(reference if is_causal else block).parameters()]),
    }
    mib = {form: peak_mib(work) for form, work in works.items()}
    samples = interleaved(works, rounds, SAMPLE_SECONDS)
    return {
        "mechanism": name,
        "tokens": tokens,
        **{f"{form}, ms": 1e3 * min(taken) for form, taken in samples.items()},
        "naive / block": ratio(samples["naive"], samples["block"]),
        **{f"{form}, MiB": value for form, value in mib.items()},
    }


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


def _pass(
    form: Callable[[Tensor], Tensor], x: Tensor, inputs: Sequence[Tensor]
) -> Callable[[], None]:
    gradient = torch.ones_like(x)

    def work() -> None:
        # Some weights do not affect the output, such as a bias that softmax cancels.
        torch.autograd.grad(form(x), inputs, gradient, allow_unused=True)

    return work
