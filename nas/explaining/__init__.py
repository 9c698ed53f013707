"""Explaining: measure the contribution of each part of a mechanism by training edited mechanisms.

edits.py      single edits of a genome, with descriptions
plan.py       the edited mechanisms, and variants of the reference of similar costs
"""

from nas.explaining.plan import Bounds, Change, Explanation, plan_explanation

__all__ = ["Bounds", "Change", "Explanation", "plan_explanation"]
