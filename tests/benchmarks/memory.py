"""What one pass of a long sequence holds at most: 4,096 tokens, 8 heads, forward and backward.

Scores that a network computes for each pair would need a plane of pairs for each hidden unit; they
are computed in pieces, within 2 GiB. Peak memory is the sum of PyTorch's own allocations beyond
weights and input. It is the same in every run, so that it has no spread.
"""

from __future__ import annotations

import argparse
import os
from typing import Final

import torch

from nas.compiler import build_attention
from nas.mechanisms import mechanism
from tests.benchmarks.figures import Figure
from tests.benchmarks.peak import peak_bytes

NAMES: Final = ("mha", "qana", "additive", "neural_attention", "neural_attention_authors")
DIM: Final = 128
HEADS: Final = 8
TOKENS: Final = 4096
LIMIT_MIB: Final = 2048


def memory(options: argparse.Namespace) -> list[Figure]:
    """MiB at most, a figure for each mechanism."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces each of its starts
    print(f"\n{TOKENS:,} tokens, dim {DIM}, {HEADS} heads: peak MiB of forward and backward")
    figures = []
    for name in NAMES:
        block = build_attention(mechanism(name).genome, DIM, HEADS)
        x = torch.randn(1, TOKENS, DIM, requires_grad=True)
        mib = peak_bytes(lambda block=block, x=x: block(x).sum().backward()) / 2**20
        figures.append(Figure(name, mib, "MiB", mib, mib))
        verdict = "" if mib <= LIMIT_MIB else f"  more than {LIMIT_MIB:,}"
        print(f"  {name:26}{mib:9,.0f}{verdict}", flush=True)
    return figures
