"""Measure the peak memory of one pass over a long sequence: 4,096 tokens, 8 heads.

A network that scores pairs would need one matrix of pairs per hidden unit; our kernels compute it
in blocks. Peak memory is the memory that PyTorch allocates for a forward and a backward pass beyond
weights and input. It is the same in each run.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.figures import Figure, single
from nas.compiler import build_attention
from nas.genome.mechanisms import mechanism

NAMES: Final = ("mha", "qana", "additive", "neural_attention", "neural_attention_authors")
DIM: Final = 128
HEADS: Final = 8
TOKENS: Final = 4096


def memory(options: argparse.Namespace) -> list[Figure]:
    """Return the peak memory of each mechanism, in MiB."""
    print(f"\n{TOKENS:,} tokens, dim {DIM}, {HEADS} heads: peak MiB of forward and backward")
    figures = []
    for name in NAMES:
        block = build_attention(mechanism(name).genome, DIM, HEADS)
        x = torch.randn(1, TOKENS, DIM, requires_grad=True)
        mib = peak_mib(lambda block=block, x=x: block(x).sum().backward())
        figures.append(single(name, mib, "MiB"))
        print(f"  {name:26}{mib:9,.0f}", flush=True)
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
