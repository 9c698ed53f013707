"""Compile genomes to torch modules.

A genome becomes a plan, a list of calls of primitives (the operations of genomes). The reference
interpreter executes a plan call by call. Lowering replaces some calls by faster functions
(kernels), and a ``Source`` writes the plan as a Python class.
"""

from nas.compiler.building import build_attention, plain_source
from nas.compiler.formula import formula, formula_of
from nas.compiler.plan import Plan, ResolvedGenome, make_plan, resolve, rest_attention

__all__ = [
    "Plan",
    "ResolvedGenome",
    "build_attention",
    "formula",
    "formula_of",
    "make_plan",
    "plain_source",
    "resolve",
    "rest_attention",
]
