"""Validation of genomes by type checks and by path rules (a policy)."""

from nas.space.rules.policy import Policy, Rule, load_policy
from nas.space.rules.validator import Violation, validate

__all__ = ["Policy", "Rule", "Violation", "load_policy", "validate"]
