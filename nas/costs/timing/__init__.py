"""Predicted time: ``calibrate`` measures unit times, predictions are their weighted sums."""

from nas.costs.timing.calibration import Calibration, calibrate, decode_ms, predict_ms

__all__ = ["Calibration", "calibrate", "decode_ms", "predict_ms"]
