"""Explaining: measure the contribution of each part of a mechanism by training edited mechanisms.

edits.py      single edits of a genome, with descriptions
plan.py       all comparisons: single edits, a path from standard attention, variants of it
racing.py     trains the compared mechanisms; undecided comparisons get further seeds
"""

from nas.explaining.plan import Bounds, Comparison, Explanation, plan_explanation
from nas.explaining.racing import Race

__all__ = ["Bounds", "Comparison", "Explanation", "Race", "plan_explanation"]
