"""Measure the accuracy of predicted times for mechanisms that the calibration did not measure.

These are distinct random genomes of the spaces and all named mechanisms, forward and backward, at a
task's sizes. Other load affects the calibration and the measurements differently, so errors are
smaller on an idle machine.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from types import MappingProxyType
from typing import Final

import numpy as np
import torch
from scipy.stats import spearmanr

from benchmarks.figures import Figure, single
from nas.common.errors import NasError
from nas.compiler import build_attention, make_plan
from nas.compiler import resolve as resolve_genome
from nas.costs import CostContext, costs_of
from nas.costs.timing import calibrate
from nas.costs.timing.measuring import Passes
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
}


BYTES: Final = LayerSetting(ModelSizes(64, 4, 1, 64), 16, is_causal=True)


def timing(options: argparse.Namespace) -> list[Figure]:
    """Return errors and rank correlation of predicted times at two tasks' sizes."""
    if options.genome:
        return relative_to_mha(options.genome, options.rounds)
    figures = []
    for name, setting in SETTINGS.items():
        begin = time.process_time()
        context = calibrated(setting)
        seconds = time.process_time() - begin
        genomes = sample_genomes(GENOMES, setting)
        measured = measure(genomes, setting, options.rounds)
        predicted = predict(genomes, context)
        figures += [
            single(f"{name}, calibration", seconds, "s"),
            *agreement(name, predicted, measured),
        ]
        print(f"\n{name}: {len(genomes)} genomes, measured best of {options.rounds} rounds")
        for figure in figures[-3:]:
            print(f"  {figure.name:44}{figure!s:>10}   {figure.spread}", flush=True)
    return figures


def relative_to_mha(sources: Sequence[str], rounds: int) -> list[Figure]:
    """Return measured and predicted times of a layer, relative to standard attention."""
    figures = []
    for name, setting in {"vit-cifar10": SETTINGS["vit-cifar10"], "bytes": BYTES}.items():
        figures += _relative(f"{name}, ", setting, sources, rounds)
    return figures


def _relative(
    task: str, setting: LayerSetting, sources: Sequence[str], rounds: int
) -> list[Figure]:
    genomes = [resolve(source).genome for source in ("mha", *sources)]
    predicted = predict(genomes, calibrated(setting))
    measured = measure(genomes, setting, rounds)
    figures = []
    for source, predicted_ms, measured_ms in zip(sources, predicted[1:], measured[1:], strict=True):
        figures.append(single(f"{task}{source}, predicted", predicted_ms / predicted[0], "x mha"))
        figures.append(single(f"{task}{source}, measured", measured_ms / measured[0], "x mha"))
    return figures


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


def agreement(name: str, predicted: Sequence[float], measured: Sequence[float]) -> list[Figure]:
    """Return the median error of predicted times in percent, and Spearman's correlation."""
    errors = [abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]
    low, middle, high = (100 * value for value in quantiles(errors, n=4))
    return [
        Figure(f"{name}, error of {len(predicted)} genomes", middle, "%", low, high),
        single(f"{name}, Spearman", float(spearmanr(predicted, measured).statistic), ""),
    ]


def sample_genomes(
    count: int, setting: LayerSetting, shares: Mapping[str, float] = MappingProxyType(SHARES)
) -> list[Genome]:
    """Return all named mechanisms and random genomes that can be built at these sizes."""
    rng = np.random.default_rng(5)
    genomes: dict[Genome, None] = {}
    for named in MECHANISMS.values():
        _add(named.genome, setting, genomes)
    for name, share in shares.items():
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
    seconds = [[passes.seconds(work) for work in works] for _ in range(rounds + 1)]
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build_attention(genome, sizes.dim, sizes.heads)
