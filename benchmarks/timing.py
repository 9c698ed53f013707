"""Measure the accuracy of predicted times for mechanisms that the calibration did not measure.

These are distinct random genomes of the spaces and all named mechanisms, forward and backward, at a
task's sizes. Other load affects the calibration and the measurements differently, so errors are
smaller on an idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from scipy.stats import spearmanr

from benchmarks.interleaving import median
from benchmarks.rows import Row
from nas.common.errors import NasError
from nas.compiler import build_attention, make_plan
from nas.compiler import resolve as resolve_genome
from nas.costs import CostContext, costs_of
from nas.costs.timing import calibrate
from nas.costs.timing.measuring import Passes, seconds_of
from nas.genome import Genome, ModelSizes
from nas.genome.canonical import canonicalise
from nas.genome.mechanisms import MECHANISMS
from nas.space import load_space
from nas.space.rules import load_policy
from nas.space.vary import Variation
from nas.store.sources import resolve

GENOMES: Final = 200
SHARES: Final = {"attention_v2": 0.7, "attention_v1": 0.2, "quickstart": 0.1}


@dataclass(frozen=True)
class LayerSetting:
    """Sizes of one layer, and the batch size."""

    sizes: ModelSizes
    batch: int
    is_causal: bool


SETTINGS: Final = {
    "vit-cifar10": LayerSetting(ModelSizes(64, 4, 1, 65), 64, is_causal=False),
    "recall": LayerSetting(ModelSizes(64, 4, 1, 48), 80, is_causal=True),
    "bytes": LayerSetting(ModelSizes(64, 4, 1, 64), 16, is_causal=True),
}


def timing(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the agreement of predicted and measured times at two tasks' sizes.

    With ``--genome`` it is the time of each of these genomes, relative to standard attention.
    """
    if options.genome:
        yield from relative_to_mha(options.genome, options.rounds)
        return
    for name in ("vit-cifar10", "recall"):
        setting = SETTINGS[name]
        genomes = sample_genomes(GENOMES, setting)
        predicted, measured = compare(genomes, setting, options.rounds)
        yield {"task": name, **agreement(predicted, measured)}


def relative_to_mha(sources: Sequence[str], rounds: int) -> Iterator[Row]:
    """Yield measured and predicted times of a layer, relative to standard attention."""
    genomes = [resolve(source).genome for source in ("mha", *sources)]
    for task in ("vit-cifar10", "bytes"):
        predicted, measured = compare(genomes, SETTINGS[task], rounds)
        for number, source in enumerate(sources, 1):
            yield {
                "task": task,
                "genome": source,
                "predicted, x mha": predicted[number] / predicted[0],
                "measured, x mha": measured[number] / measured[0],
            }


def compare(
    genomes: Sequence[Genome], setting: LayerSetting, rounds: int
) -> tuple[list[float], list[float]]:
    """Return predicted and measured milliseconds of a layer with each genome."""
    return predict(genomes, calibrated(setting)), measure(genomes, setting, rounds)


def calibrated(setting: LayerSetting) -> CostContext:
    """Return a context with unit times that were measured at the sizes of a layer, in float32."""
    calls = {"is_causal": setting.is_causal, "qkv_bias": False}
    units = calibrate(
        setting.sizes, batch=setting.batch, precision="float32", device="cpu", **calls
    )
    return CostContext(setting.sizes, **calls, calibration=units)


def predict(genomes: Sequence[Genome], context: CostContext) -> list[float]:
    """Return the predicted milliseconds of one layer of each genome."""
    resolved = (resolve_genome(genome, context.sizes) for genome in genomes)
    return [costs_of(each, context, ["time_ms"])["time_ms"] for each in resolved]


def agreement(predicted: Sequence[float], measured: Sequence[float]) -> Row:
    """Return the median error of predicted times in percent, and Spearman's correlation."""
    errors = [100 * abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]
    return {
        "genomes": len(errors),
        "median error, %": median(errors),
        "Spearman": float(spearmanr(predicted, measured).statistic),
    }


def sample_genomes(count: int, setting: LayerSetting) -> list[Genome]:
    """Return all named mechanisms and random genomes that can be built at these sizes."""
    rng = np.random.default_rng(5)
    genomes: dict[Genome, None] = {}
    for named in MECHANISMS.values():
        _add(named.genome, setting, genomes)
    for name, share in SHARES.items():
        space = load_space(name)
        variation = Variation(space, load_policy(space.policy), setting.is_causal)
        least = len(genomes) + round(share * count)
        while len(genomes) < least:
            _add(variation.sample(rng), setting, genomes)
    return list(genomes)


def measure(genomes: Sequence[Genome], setting: LayerSetting, rounds: int) -> list[float]:
    """Return milliseconds of a layer with each genome, the minimum over alternating rounds."""
    sizes = setting.sizes
    passes = Passes(
        sizes, setting.batch, precision="float32", device="cpu", is_causal=setting.is_causal
    )
    works = [passes.of(_block(genome, sizes)) for genome in genomes]
    seconds = [[seconds_of(work, passes.device) for work in works] for _ in range(rounds + 1)]
    return [1e3 * min(times) for times in zip(*seconds[1:], strict=True)]


def _add(genome: Genome, setting: LayerSetting, genomes: dict[Genome, None]) -> None:
    """Add the normal form of a genome if it can be built at these sizes."""
    genome = canonicalise(genome, setting.sizes)
    try:
        _block(genome, setting.sizes)
    except NasError:
        return
    if not (setting.is_causal and make_plan(genome).unsafe):
        genomes[genome] = None


def _block(genome: Genome, sizes: ModelSizes) -> torch.nn.Module:
    return build_attention(genome, sizes.dim, sizes.heads)
