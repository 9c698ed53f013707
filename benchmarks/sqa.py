"""Measure the speed-up of Sparse Query Attention, whose claim is that fewer query heads are faster.

The paper times whole models of 8 layers on an A100 (Table 3). This benchmark times the attention
layer alone: with projections, causal, on one thread. It compares the speed-up over multi-head
attention with the ratio of multiply-adds. The multiply-adds are of all n x n pairs, because a
causal mask saves the same share in each variant.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from benchmarks.figures import Figure, interleaved, ratio
from nas.compiler import build_attention
from nas.costs import attention_cost
from nas.genome.mechanisms import MECHANISMS

DIM, HEADS = 256, 16
LENGTHS: Final = (512, 2_048, 4_096)
VARIANTS: Final = ("mha", "gqa", "mqa", "sqa", "ssqa", "xsqa", "xsmqa", "lsqa", "rsqa")

# Table 3: seconds per step.
PAPER_LENGTHS: Final = (1_024, 4_096, 32_768, 131_072, 200_000)
PAPER: Final = {
    "mha": (0.0869, 0.1114, 0.3727, 1.2648, 2.8734),
    "gqa": (0.0785, 0.1027, 0.3637, 1.2558, 2.8596),
    "mqa": (0.0760, 0.1001, 0.3612, 1.2530, 2.8555),
    "sqa": (0.0642, 0.0750, 0.1991, 0.6308, 1.4116),
    "ssqa": (0.0669, 0.0793, 0.2117, 0.6630, 1.4824),
    "xsqa": (0.0570, 0.0637, 0.1348, 0.3759, 0.8194),
}


def sqa(options: argparse.Namespace) -> list[Figure]:
    """Return the speed-up of each variant; print the paper's speed-ups too."""
    print(
        f"\nforward pass, causal, dim {DIM}, {HEADS} heads, float32, batch 1; processor time of one"
        f"\nthread, the fastest of {options.rounds} interleaved rounds"
    )
    figures = [figure for n in LENGTHS for figure in _compare(n, options.rounds)]
    print("\nthe paper's speed-ups over mha (Table 3, whole models of 8 layers, A100)")
    print(f"  {'tokens':10}" + "".join(f"{n:>9,}" for n in PAPER_LENGTHS))
    for name, seconds in list(PAPER.items())[1:]:
        speed_ups = (mha / variant for mha, variant in zip(PAPER["mha"], seconds, strict=True))
        print(f"  {name:10}" + "".join(f"{speed_up:9.2f}" for speed_up in speed_ups))
    return figures


def _compare(tokens: int, rounds: int) -> list[Figure]:
    """Time each variant's forward pass at one length, and compare with its multiply-adds."""
    samples = interleaved({name: _pass(name, tokens) for name in VARIANTS}, rounds)
    macs = {
        name: attention_cost(MECHANISMS[name].genome, dim=DIM, heads=HEADS, tokens=tokens).macs
        for name in VARIANTS
    }
    print(f"\n{tokens:,} tokens{'ms':>12}{'speed-up':>10}{'by MACs':>9}{'ratio':>7}")
    figures = []
    for name in VARIANTS:
        figure = ratio(f"{tokens} tokens: mha / {name}", samples["mha"], samples[name])
        predicted = macs["mha"] / macs[name]
        print(
            f"  {name:10}{1e3 * min(samples[name]):12.2f}{figure.value:10.2f}{predicted:9.2f}"
            f"{figure.value / predicted:7.2f}",
            flush=True,
        )
        figures.append(figure)
    return figures[1:]


def _pass(name: str, tokens: int) -> Callable[[], None]:
    block = build_attention(MECHANISMS[name].genome, DIM, HEADS).eval()
    forward = partial(block, torch.randn(1, tokens, DIM), is_causal=True)
    return torch.no_grad()(forward)
