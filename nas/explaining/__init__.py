"""Explaining: measure the contribution of each part of a mechanism by training edited mechanisms.

edits.py      single edits of a genome, with descriptions
bounds.py     selects the edited genomes that may be trained: legal and valid under the task
path.py       from standard attention to the mechanism, one edit at a time
plan.py       all comparisons of one explanation, including controls of similar costs
racing.py     trains the compared mechanisms; unresolved comparisons get further seeds
"""

from nas.explaining.bounds import Bounds
from nas.explaining.plan import Comparison, Explanation, plan_explanation
from nas.explaining.racing import Race

__all__ = ["Bounds", "Comparison", "Explanation", "Race", "plan_explanation"]
