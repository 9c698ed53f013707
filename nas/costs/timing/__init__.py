"""Predicted times of mechanisms: weighted sums of unit times that ``calibrate`` measures."""

from nas.costs.timing.calibration import calibrate
from nas.costs.timing.prediction import decode_ms, predict_ms

__all__ = ["calibrate", "decode_ms", "predict_ms"]
