"""Validation of genomes by type checks and by path rules (a policy)."""

from nas.space.rules.policy import Policy, PolicyFile, Rule, compile_policy, load_policy
from nas.space.rules.validator import Violation, validate

__all__ = [
    "Policy",
    "PolicyFile",
    "Rule",
    "Violation",
    "compile_policy",
    "load_policy",
    "validate",
]
