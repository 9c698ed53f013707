"""Predicted time: ``calibrate`` measures this hardware's units, predictions add them up."""

from nas.costs.timing.calibration import Calibration, calibrate, decode_ms, predict_ms

__all__ = ["Calibration", "calibrate", "decode_ms", "predict_ms"]
