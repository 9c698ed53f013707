"""Predicted time: ``calibrate`` measures unit times, predictions are their weighted sums."""

from nas.costs.timing.calibration import calibrate
from nas.costs.timing.prediction import decode_ms, predict_ms

__all__ = ["calibrate", "decode_ms", "predict_ms"]
