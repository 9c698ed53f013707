"""Explaining: what each part of a mechanism is worth, by trainings of mechanisms that differ by it.

edits.py      single edits of a genome, in words
bounds.py     which edited genomes may be trained: legal, possible under the task, each once
path.py       from standard attention to the mechanism, one edit at a time
plan.py       all comparisons of one explanation, controls of like costs among them
racing.py     train what is compared, the unresolved with further seeds
"""

from nas.explaining.bounds import Bounds
from nas.explaining.plan import Comparison, Explanation, plan_explanation
from nas.explaining.racing import Race

__all__ = ["Bounds", "Comparison", "Explanation", "Race", "plan_explanation"]
