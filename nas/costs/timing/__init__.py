"""Predicted times of mechanisms: sums of amounts of work times measured unit times."""

from nas.costs.timing.calibration import calibrate

__all__ = ["calibrate"]
