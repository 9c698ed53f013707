"""Measure mechanisms by lengths by passes, round by round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import torch

from nas.compiler import make_plan
from nas.errors import DeviceError, GenomeError
from nas.measurement.child import MeasuringProcess
from nas.measurement.passes import PASSES, Case, Pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.genome import Genome


@dataclass(frozen=True)
class Reading:
    """What one pass of one mechanism at one length took.

    Attributes:
        samples_ms: its time in each round, milliseconds.
        peak_memory_bytes: the most that it held at once, beyond weights and input.
    """

    samples_ms: tuple[float, ...]
    peak_memory_bytes: int

    @property
    def ms(self) -> float:
        """The fastest round: what other processes disturbed least."""
        return min(self.samples_ms)

    @property
    def spread(self) -> float:
        """How much slower the median round was, as a fraction of the fastest."""
        return statistics.median(self.samples_ms) / self.ms - 1


Key: TypeAlias = tuple[str, int, Pass]
Readings: TypeAlias = Mapping[Key, Reading | None]


@dataclass(frozen=True)
class Done:
    """A measurement ended: ``number`` of ``total``; round 0 is the one that finds out what fits."""

    number: int
    total: int
    round: int
    key: Key


def measure(
    genomes: Mapping[str, Genome],
    lengths: Sequence[int],
    *,
    dim: int,
    heads: int,
    rounds: int = 5,
    device: str = "cpu",
    is_causal: bool = False,
    passes: Sequence[Pass] = PASSES,
    listener: Callable[[Done], None] = lambda done: None,
) -> Readings:
    """Measure one attention block of each mechanism at each length, at batch 1 in float32.

    Args:
        genomes: the mechanisms by name.
        lengths: sequence lengths, tokens.
        rounds: times that everything is measured, one after the other, in turn.

    Returns:
        A reading by name, length and pass; None where a pass does not fit into memory.

    Raises:
        DeviceError: the device is not in this machine.
        GenomeError: a mechanism that is asked to be causal is not.
        NasError: a mechanism does not exist at this size.
    """
    check_device(device)
    if is_causal:
        _check_causal(genomes)
    cases = {
        (name, tokens, direction): Case(
            genomes[name], dim, heads, tokens, direction, device, is_causal
        )
        for tokens, name, direction in product(lengths, genomes, passes)
    }
    turns = list(product(range(rounds + 1), cases))
    peaks: dict[Key, float | None] = {}
    samples: dict[Key, list[float]] = {key: [] for key in cases}
    with MeasuringProcess() as child:
        for number, (round_, key) in enumerate(turns, start=1):
            if round_ == 0:
                peaks[key] = child.ask("peak_bytes", cases[key])
            elif peaks[key] is not None:
                sample = child.ask("milliseconds", cases[key])
                if sample is None:
                    peaks[key] = None  # somebody else has taken the memory since
                else:
                    samples[key].append(sample)
            listener(Done(number, len(turns), round_, key))
    return {
        key: None if peak is None else Reading(tuple(samples[key]), int(peak))
        for key, peak in peaks.items()
    }


def check_device(name: str) -> None:
    """Refuse a device that PyTorch does not see here.

    Raises:
        DeviceError: it is unknown or missing.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    known = ["cpu", *["cuda"][:count], *(f"cuda:{i}" for i in range(count))]
    if name not in known:
        raise DeviceError(
            f"device {name!r}: PyTorch does not see it here; expected {' or '.join(known)}."
        )


def _check_causal(genomes: Mapping[str, Genome]) -> None:
    for name, genome in genomes.items():
        unsafe = make_plan(genome).unsafe
        if unsafe:
            raise GenomeError(f"{name}: {', '.join(unsafe)} sees later tokens: not causal.")
