"""Measure the contribution of each part of a mechanism by training edited mechanisms."""

from nas.explaining.plan import Bounds, Explanation, plan_explanation

__all__ = ["Bounds", "Explanation", "plan_explanation"]
