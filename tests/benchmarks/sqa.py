"""The central claim of Sparse Query Attention, measured: fewer query heads, less time.

The paper times whole models of 8 layers on an A100 (Table 3). Here it is the attention layer alone,
projections included, causal, on one thread: its speed-up over multi-head attention, against what
multiply-adds predict (all n x n of them: causality spares every variant the same share).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from nas.compiler import build_attention
from nas.costs import attention_cost
from nas.genome import Genome
from nas.mechanisms import MECHANISMS
from tests.benchmarks.figures import Figure, ratio

DIM, HEADS = 256, 16
LENGTHS = (512, 2_048, 4_096)
VARIANTS = ("mha", "gqa", "mqa", "sqa", "ssqa", "xsqa", "xsmqa", "lsqa", "rsqa")

CLAIMED_FROM = 2_048  # tokens
TOLERANCE = 0.25  # of measured over predicted speed-up
# From fast to slow; within a group the paper makes no difference. The last step may be none.
ORDER = (("xsqa",), ("sqa", "ssqa"), ("gqa", "mqa"), ("mha",))
EQUAL = 0.05  # what counts as no slower

# Table 3: seconds a step.
PAPER_LENGTHS = (1_024, 4_096, 32_768, 131_072, 200_000)
PAPER = {
    "gqa": (0.0785, 0.1027, 0.3637, 1.2558, 2.8596),
    "mqa": (0.0760, 0.1001, 0.3612, 1.2530, 2.8555),
    "sqa": (0.0642, 0.0750, 0.1991, 0.6308, 1.4116),
    "ssqa": (0.0669, 0.0793, 0.2117, 0.6630, 1.4824),
    "xsqa": (0.0570, 0.0637, 0.1348, 0.3759, 0.8194),
    "mha": (0.0869, 0.1114, 0.3727, 1.2648, 2.8734),
}


@dataclass(frozen=True)
class Speed:
    """A variant at one length.

    Attributes:
        ms: the fastest round's forward pass.
        speed_up: how many times as fast as multi-head attention.
        predicted: the same by multiply-adds.
        samples_ms: all rounds.
    """

    ms: float
    speed_up: float
    predicted: float
    samples_ms: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Measured over predicted speed-up."""
        return self.speed_up / self.predicted


def measure_speeds(
    lengths: Sequence[int] = LENGTHS, rounds: int = 15
) -> dict[int, dict[str, Speed]]:
    """Every variant's forward pass at every length."""
    genomes = {name: MECHANISMS[name].genome for name in VARIANTS}
    speeds: dict[int, dict[str, Speed]] = {}
    for n in lengths:
        samples = _interleaved(genomes, n, rounds)
        ms = {name: min(own) for name, own in samples.items()}
        macs = {
            name: attention_cost(genome, dim=DIM, heads=HEADS, tokens=n).macs
            for name, genome in genomes.items()
        }
        speeds[n] = {
            name: Speed(ms[name], ms["mha"] / ms[name], macs["mha"] / macs[name], tuple(own))
            for name, own in samples.items()
        }
        print(f"{n:,} tokens measured", file=sys.stderr, flush=True)
    return speeds


@torch.no_grad()
def _interleaved(genomes: Mapping[str, Genome], tokens: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of processor time of each block's forward pass; a round warms up."""
    blocks = {name: build_attention(own, DIM, HEADS).eval() for name, own in genomes.items()}
    x = torch.randn(1, tokens, DIM)
    taken: dict[str, list[float]] = {name: [] for name in genomes}
    for number in range(rounds + 1):
        for name, block in blocks.items():
            start = time.process_time()
            block(x, is_causal=True)
            if number:
                taken[name].append(1000 * (time.process_time() - start))
    return taken


def is_ordered(speeds: Mapping[str, Speed]) -> bool:
    """Whether each group of ``ORDER`` is faster than the next, the last at least no slower."""
    slack = [1.0] * (len(ORDER) - 2) + [1.0 + EQUAL]
    pairs = zip(ORDER, ORDER[1:], slack, strict=False)
    return all(
        max(speeds[name].ms for name in fast) < allowed * min(speeds[name].ms for name in slow)
        for fast, slow, allowed in pairs
    )


def outside(speeds: Mapping[str, Speed]) -> list[str]:
    """The variants whose measured speed-up is not the predicted one, within ``TOLERANCE``."""
    return [name for name, speed in speeds.items() if abs(speed.ratio - 1) > TOLERANCE]


def sqa(options: argparse.Namespace) -> list[Figure]:
    """Measured against predicted speed-ups, beside the paper's."""
    figures = []
    print(
        f"\nforward pass, causal, dim {DIM}, {HEADS} heads, float32, batch 1; processor time of one"
    )
    print(f"thread, the fastest of {options.rounds} interleaved rounds")
    for n, speeds in measure_speeds(rounds=options.rounds).items():
        print(f"\n{n:,} tokens{'ms':>12}{'speed-up':>10}{'by MACs':>9}{'ratio':>7}")
        for name, speed in speeds.items():
            print(
                f"  {name:10}{speed.ms:12.2f}{speed.speed_up:10.2f}{speed.predicted:9.2f}"
                f"{speed.ratio:7.2f}"
            )
        print(f"  {_verdict(n, speeds)}")
        print(f"  {_a_query_head(speeds)}")
        figures += [
            ratio(f"{n} tokens: mha / {name}", speeds["mha"].samples_ms, speed.samples_ms)
            for name, speed in speeds.items()
            if name != "mha"
        ]
    _print_paper()
    return figures


def _verdict(tokens: int, speeds: Mapping[str, Speed]) -> str:
    order = "holds" if is_ordered(speeds) else "does not hold"
    far = ", ".join(outside(speeds))
    ratios = f"not within {TOLERANCE:.0%}: {far}" if far else f"all within {TOLERANCE:.0%}"
    claimed = "" if tokens >= CLAIMED_FROM else f" (claimed from {CLAIMED_FROM:,} on)"
    return f"order {order}; {ratios} of what MACs predict{claimed}"


def _a_query_head(speeds: Mapping[str, Speed]) -> str:
    """What a further query head, with its own key and value head, takes of a forward pass."""
    few = (speeds["ssqa"].ms - speeds["xsqa"].ms) / 4
    many = (speeds["mha"].ms - speeds["ssqa"].ms) / 8
    return f"a further head costs {few:.2f} ms from 4 to 8 heads, {many:.2f} ms from 8 to 16"


def _print_paper() -> None:
    print("\nthe paper's speed-ups over mha (Table 3, whole models of 8 layers, A100)")
    print(f"  {'tokens':10}" + "".join(f"{n:>9,}" for n in PAPER_LENGTHS))
    for name, seconds in PAPER.items():
        if name != "mha":
            ratios = (whole / own for whole, own in zip(PAPER["mha"], seconds, strict=True))
            print(f"  {name:10}" + "".join(f"{ratio:9.2f}" for ratio in ratios))
