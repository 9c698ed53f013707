"""Predicted times of mechanisms: sums of amounts of work times measured unit times."""

from nas.costs.timing.calibration import calibrate
from nas.costs.timing.prediction import predict_ms

__all__ = ["calibrate", "predict_ms"]
