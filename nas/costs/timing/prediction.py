"""Predict the time of mechanisms from unit times that ``calibrate`` measured.

The time of a layer is the sum of its amounts of work, each times the unit time of its kind.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StrictBool, StrictInt, field_validator

from nas.common.config import Frozen, parse_model
from nas.common.errors import ConfigError
from nas.compiler import ResolvedGenome
from nas.costs.context import summed_layers
from nas.costs.timing.work import amounts

_RIDGE: Final = 0.02
Time = Annotated[float, Field(ge=0.0, allow_inf_nan=False, strict=True)]


class Calibration(Frozen):
    """Measured unit times in milliseconds by kind of work, with model sizes and hardware.

    Attributes:
        hardware: the name of the processor or GPU.
        torch: the version of torch.
        precision: the precision of matrix products, ``float32`` or ``bfloat16``.
        units: the unit times of a forward and backward pass.
    """

    version: Literal[1] = 1
    hardware: str
    torch: str
    device: str
    precision: str
    batch: Annotated[StrictInt, Field(ge=1)]
    is_causal: StrictBool
    qkv_bias: StrictBool
    dim: StrictInt
    heads: StrictInt
    tokens: StrictInt
    units: dict[str, Time]

    @field_validator("units")
    @classmethod
    def _some_work_takes_time(cls, value: dict[str, float]) -> dict[str, float]:
        if not any(value.values()):
            raise ValueError("no work takes any time")
        return value


def _calibration(data: Mapping[str, Any], **expected: object) -> Calibration:
    """Return measured unit times from JSON data; ConfigError if not measured as ``expected``."""
    calibration = parse_model(dict(data or {}), Calibration, "calibration")
    for name, value in expected.items():
        if getattr(calibration, name) != value:
            raise ConfigError(
                f"calibration, {name}: measured with {getattr(calibration, name)}, asked with "
                f"{value}; expected what nas.costs.timing.calibrate measured in this context."
            )
    return calibration


def predict_ms(
    resolved: ResolvedGenome, calibration: Mapping[str, Any], **expected: object
) -> float:
    """Predict the milliseconds of a model's attention layers for one training batch.

    The time covers the forward and the backward pass of all layers, also of those that do not hold
    the mechanism.

    Args:
        expected: values that fields of ``calibration`` must have, such as ``is_causal``.

    Raises:
        ConfigError: the unit times are invalid, or measured with other sizes or calls.
        GenomeError, ViolationError: the mechanism does not exist.
    """
    sizes = resolved.sizes
    expected |= {"dim": sizes.dim, "heads": sizes.heads, "tokens": sizes.tokens}
    known = _calibration(calibration, **expected)

    def layer_ms(layer: ResolvedGenome) -> float:
        work = amounts(layer.plan, sizes, known.batch, is_causal=known.is_causal)
        return total(work, known.units)

    return summed_layers(resolved, layer_ms)


def fitted(rows: Sequence[Mapping[str, float]], times: Sequence[float]) -> dict[str, float]:
    """Fit the unit time of each kind of work: non-negative least squares of relative errors.

    A small ridge penalty shrinks undetermined unit times to zero.

    Args:
        rows: the work of each timed mechanism, by kind.
        times: the time of each timed mechanism.
    """
    import numpy as np
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    kinds = sorted({kind for row in rows for kind, amount in row.items() if amount})
    table = np.array([[row.get(kind, 0.0) for kind in kinds] for row in rows])
    relative = table / np.array(times)[:, None]
    scale = relative.max(axis=0)
    ridge = _RIDGE * np.eye(len(kinds))
    target = np.concatenate([np.ones(len(rows)), np.zeros(len(kinds))])
    units = nnls(np.vstack([relative / scale, ridge]), target)[0] / scale
    return {kind: float(unit) for kind, unit in zip(kinds, units, strict=True)}


def total(work: Mapping[str, float], units: Mapping[str, float]) -> float:
    """Return the predicted time of amounts of work: the sum of amount times unit time."""
    return math.fsum(amount * _unit(kind, units) for kind, amount in work.items() if amount)


def _unit(kind: str, units: Mapping[str, float]) -> float:
    """Return the unit time of a kind of work.

    If a kind of elements or multiply-adds was not measured, the result is the median unit time of
    its like. A table that was recorded without calls has none.
    """
    if kind in units or kind == "call":
        return units.get(kind, 0.0)
    is_macs = kind.endswith(".macs")
    like = [unit for name, unit in units.items() if unit and name.endswith(".macs") == is_macs]
    return statistics.median(like or units.values())
