"""The predicted time as a cost of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.config import describe
from nas.costs import COSTS, CostMeasure
from nas.errors import ConfigError
from nas.timing.calibration import predict_ms

if TYPE_CHECKING:
    from nas.costs import Setting
    from nas.genome import Genome


def time_ms(genome: Genome, setting: Setting) -> float:
    """Milliseconds of the attention layers, forward and backward, of one training batch.

    Raises:
        ConfigError: the setting's calibration is none, or of another setting.
        GenomeError, ViolationError: the mechanism does not exist.
    """
    found = predict_ms(genome, setting.sizes, setting.calibration)
    for name in ("is_causal", "qkv_bias"):
        if setting.calibration[name] != getattr(setting, name):
            raise ConfigError(
                f"calibration, {name}: measured with {describe(setting.calibration[name])}, asked "
                f"with {getattr(setting, name)}; expected one measured for this setting."
            )
    return found


COSTS.register("time_ms")(
    CostMeasure(
        "time_ms",
        "ms",
        "predicted time of the attention layers, forward and backward, of one training batch",
        time_ms,
    )
)
