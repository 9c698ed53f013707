"""Explaining: measure the contribution of each part of a mechanism by training edited mechanisms.

edits.py      single edits of a genome, with descriptions
plan.py       all comparisons of an explanation: edits, a path from standard attention, controls
racing.py     trains the compared mechanisms; unresolved comparisons get further seeds
"""

from nas.explaining.plan import Bounds, Comparison, Explanation, plan_explanation
from nas.explaining.racing import Race

__all__ = ["Bounds", "Comparison", "Explanation", "Race", "plan_explanation"]
