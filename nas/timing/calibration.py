"""Unit times of the work in mechanisms, measured on this hardware, and the times they predict.

    calibration = calibrate(sizes, batch=64, precision="float32", device="cpu", ...)
    predict_ms(genome, sizes, calibration)

A layer's time is the sum of its ``amounts``, each times the unit of its kind. The units are the
non-negative least squares of the relative errors over the mechanisms of ``designs``, each timed
forward and backward. Units that nothing determines are drawn to zero a little.
"""

from __future__ import annotations

import math
import platform
import statistics
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.compiler import Plan, build_attention, make_plan
from nas.config import describe
from nas.errors import ConfigError, NasError
from nas.genome import Genome, ModelSizes, layers_with_mechanism
from nas.mechanisms import mechanism
from nas.timing.design import designs
from nas.timing.features import WAYS, amounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

VERSION: Final = 1
SECONDS: Final = 3.0  # of rounds
FEWEST_NUMBERS: Final = 2**20  # that a timed pass touches, and four times that in networks
FEWEST_PAIRS: Final = 2**15
RIDGE: Final = 0.02
KEYS: Final = (
    *("version", "hardware", "torch", "device", "precision", "batch", "is_causal", "qkv_bias"),
    *("dim", "heads", "tokens", "units"),
)


def calibrate(
    sizes: ModelSizes,
    *,
    batch: int,
    precision: str,
    device: str,
    is_causal: bool,
    qkv_bias: bool,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Measure the units at a model's sizes; JSON data.

    Args:
        precision: float32 or bfloat16, the products' as in a training.
        seconds: for rounds of measurement, of which there are two at least.

    Raises:
        NasError: no mechanism exists at these sizes.
    """
    import torch

    from nas.timing.measuring import Passes, fastest, one_thread

    passes = Passes(sizes, batch, precision=precision, device=device, is_causal=is_causal)
    is_cuda = passes.device.type == "cuda"
    rows, works = [], []
    with one_thread(), torch.random.fork_rng(devices=[]):  # weights are drawn
        for plan, block in _blocks(sizes, is_causal=is_causal, qkv_bias=qkv_bias):
            count = batch if is_cuda else _count(plan, sizes, batch)
            row = amounts(plan, sizes, count, is_causal=is_causal)
            if row in rows:
                continue
            rows.append(row)
            works.append(passes.of(block, count))
        times = fastest(passes, works, seconds)
    name = torch.cuda.get_device_name(passes.device) if is_cuda else _processor()
    return {
        "version": VERSION,
        "hardware": name,
        "torch": str(torch.__version__),
        "device": passes.device.type,
        "precision": precision,
        "batch": batch,
        "is_causal": is_causal,
        "qkv_bias": qkv_bias,
        "dim": sizes.dim,
        "heads": sizes.heads,
        "tokens": sizes.tokens,
        "units": _units(rows, [1e3 * value for value in times]),
    }


def predict_ms(
    mechanism_or_plan: Genome | Plan, sizes: ModelSizes, calibration: Mapping[str, Any]
) -> float:
    """Milliseconds of a backbone's attention layers, forward and backward, of one training batch.

    Layers that the placement leaves out hold standard attention.

    Raises:
        ConfigError: the calibration is none, or of other sizes.
        GenomeError, ViolationError: the mechanism does not exist.
    """
    check_calibration(calibration, sizes)
    plan = mechanism_or_plan
    plan = make_plan(plan, sizes) if isinstance(plan, Genome) else plan
    own = len(layers_with_mechanism(plan.genome.placement, sizes.depth))
    total = own * _layer_ms(plan, sizes, calibration)
    if own < sizes.depth:
        total += (sizes.depth - own) * _layer_ms(_standard(sizes), sizes, calibration)
    return total


@lru_cache(maxsize=8)
def _standard(sizes: ModelSizes) -> Plan:
    return make_plan(mechanism("mha").genome, sizes)


def check_calibration(calibration: Mapping[str, Any], sizes: ModelSizes) -> None:
    """Refuse what ``calibrate`` did not give for these sizes.

    Raises:
        ConfigError: what is wrong, and what to do.
    """
    remedy = "expected what nas.timing.calibrate measured at these sizes"
    if not isinstance(calibration, Mapping) or calibration.get("version") != VERSION:
        raise ConfigError(f"calibration: no mapping of version {VERSION}; {remedy}.")
    for key in KEYS:
        if key not in calibration:
            raise ConfigError(f"calibration: the key {key!r} is missing; {remedy}.")
    for key in ("dim", "heads", "tokens"):
        if calibration[key] != getattr(sizes, key):
            raise ConfigError(
                f"calibration, {key}: measured at {describe(calibration[key])}, asked at "
                f"{getattr(sizes, key)}; {remedy}."
            )
    units, batch = calibration["units"], calibration["batch"]
    if not isinstance(batch, int) or batch < 1:
        raise ConfigError(f"calibration, batch: found {describe(batch)}; {remedy}.")
    is_good = isinstance(units, Mapping) and any(_is_time(unit) and unit for unit in units.values())
    if not is_good or not all(_is_time(unit) for unit in units.values()):
        raise ConfigError(f"calibration, units: not all are times of work; {remedy}.")


def _is_time(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0  # type: ignore[operator,arg-type]


def _layer_ms(plan: Plan, sizes: ModelSizes, calibration: Mapping[str, Any]) -> float:
    """One layer."""
    units = calibration["units"]
    work = amounts(plan, sizes, calibration["batch"], is_causal=calibration["is_causal"])
    return math.fsum(amount * _unit(kind, units) for kind, amount in work.items() if amount)


def _unit(kind: str, units: Mapping[str, float]) -> float:
    """The time of a unit of work; what was not measured takes as long as what is most like it.

    That is the same work done in another way, else the median of such work; a choice of a
    parameter adds nothing.
    """
    if kind in units:
        return units[kind]
    if "=" in kind:
        return 0.0
    name, ending = kind.partition("@")[0], ".macs" if kind.endswith(".macs") else ""
    others = (f"{name.removesuffix(ending)}{way}{ending}" for way in WAYS)
    found = next((units[other] for other in others if other in units), None)
    if found is not None:
        return found
    like = [unit for name, unit in units.items() if unit and name.endswith(".macs") == bool(ending)]
    return statistics.median(like or units.values())


def _blocks(
    sizes: ModelSizes, *, is_causal: bool, qkv_bias: bool
) -> Iterator[tuple[Plan, nn.Module]]:
    """The designs that exist at these sizes, each once, ready to run."""
    seen: set[Genome] = set()
    for genome in designs(sizes.tokens):
        try:
            plan = make_plan(genome, sizes)
            if plan.genome in seen or (is_causal and plan.unsafe):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one that never trains is timed as well
                block = build_attention(plan.genome, sizes.dim, sizes.heads, qkv_bias=qkv_bias)
        except NasError:
            continue
        seen.add(plan.genome)
        yield plan, block
    if not seen:
        raise NasError(f"no mechanism exists at {sizes}; expected heads that divide dim.")


def _count(plan: Plan, sizes: ModelSizes, batch: int) -> int:
    """With how many sequences a layer is timed: all, or fewer of those that take long.

    Time is in proportion to them as long as the kernels are the same, which depends on how many
    pairs there are, and how many units of networks over pairs.
    """
    numbers, most, pairs = 0, 1, 0
    for step in plan.steps:
        size = plan.call_sizes(step, sizes.dim, sizes.heads, sizes.tokens)
        passes = step.primitive.passes(size, step.params)
        rows = sizes.tokens if step.is_paired else size.width
        numbers += size.heads * size.tokens * rows * passes
        most, pairs = max(most, passes), max(pairs, size.heads * size.pairs)
    least = FEWEST_NUMBERS if most == 1 else 4 * FEWEST_NUMBERS
    return min(batch, 1 + max(least // numbers, FEWEST_PAIRS // pairs))


def _units(rows: Sequence[Mapping[str, float]], times: Sequence[float]) -> dict[str, float]:
    """Milliseconds of a unit of work of each kind, from mechanisms' work and times."""
    import numpy as np
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    kinds = sorted({kind for row in rows for kind, amount in row.items() if amount})
    table = np.array([[row.get(kind, 0.0) for kind in kinds] for row in rows])
    relative = table / np.array(times)[:, None]
    scale = relative.max(axis=0)
    drawn = RIDGE * np.eye(len(kinds))
    target = np.concatenate([np.ones(len(rows)), np.zeros(len(kinds))])
    units = nnls(np.vstack([relative / scale, drawn]), target)[0] / scale
    return {kind: float(unit) for kind, unit in zip(kinds, units, strict=True)}


def _processor() -> str:
    """The processor as its maker calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), "")
    return model or platform.processor() or platform.machine() or "unknown"
