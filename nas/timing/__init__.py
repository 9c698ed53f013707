"""Predicted time: ``calibrate`` measures this hardware's units, ``predict_ms`` adds them up."""

from nas.timing.calibration import Calibration, calibrate, predict_ms

__all__ = ["Calibration", "calibrate", "predict_ms"]
