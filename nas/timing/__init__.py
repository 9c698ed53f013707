"""Predicted time: ``calibrate`` measures this hardware's units, ``predict_ms`` adds them up."""

from nas.timing import cost as cost  # registers the cost
from nas.timing.calibration import calibrate, check_calibration, predict_ms

__all__ = ["calibrate", "check_calibration", "predict_ms"]
