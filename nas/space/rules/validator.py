"""Validation of a genome by type checks, and then by the path rules of a policy.

The running time is proportional to the number of nodes times the number of rules. Each violation
contains a path that breaks the rule.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from nas.genome import ALL, STREAMS, Genome, Ref
from nas.genome.types import Typing, infer, is_constant
from nas.space.rules.automaton import Symbol
from nas.space.rules.policy import Policy, Rule


@dataclass(frozen=True)
class Violation:
    """A rule that a genome breaks, with a path that shows it.

    ``rule`` is the name of a path rule, or one of "arity", "types", "heads", "widths", "output",
    "empty" and "constant". ``path`` ends at the operand or output that the rule is about; it is
    only this end if a required path is missing. ``found`` and ``expected`` are the roles on the
    path and the rule's expression, or descriptions.
    """

    rule: str
    path: tuple[str, ...]
    found: str
    expected: str

    @property
    def message(self) -> str:
        """The violation as a sentence."""
        place = " -> ".join(self.path) or "the graph"
        return f"{self.rule}: {place} reads {self.found!r}; expected {self.expected!r}."

    def to_dict(self) -> dict[str, Any]:
        """Return the violation's JSON form, which ``nas validate --json`` prints."""
        return asdict(self) | {"path": list(self.path), "message": self.message}


def validate(genome: Genome, policy: Policy) -> tuple[Violation, ...]:
    """Return type errors of a genome, also of a hybrid's ``rest``, and breaches of path rules.

    If the policy requires well-typed genomes, path rules are not applied to an ill-typed genome,
    whose roles are unknown. An unknown primitive raises GenomeError.
    """
    typing = infer(genome)
    if not genome.nodes or (policy.types and typing.problems):
        return tuple(
            Violation(p.rule, _names(genome, _first_operands(genome, p.node)), p.found, p.expected)
            for p in typing.problems
        )
    graph = _Graph(genome, typing)
    violations = graph.of_arity(policy)
    for rule in policy.rules:
        violations += graph.of_rule(rule)
    if not typing.problems and is_constant(genome):
        path = _names(genome, _first_operands(genome, len(genome.nodes) - 1))
        expected = "an output that depends on the tokens"
        violations.append(Violation("constant", path, "one output for all tokens", expected))
    if genome.placement != ALL:
        found = validate(genome.rest(), policy)
        violations += [replace(each, rule=f"{each.rule} of rest") for each in found]
    return tuple(violations)


class _Graph:
    def __init__(self, genome: Genome, typing: Typing) -> None:
        self.nodes, self.live, self.signatures = genome.nodes, genome.live(), typing.signatures
        self.symbols = [Symbol(n.op, typing.role(i).value) for i, n in enumerate(genome.nodes)]
        self.genome = genome

    def of_arity(self, policy: Policy) -> list[Violation]:
        broken = []
        for word, count in policy.arity.items():
            for index in self.live:
                inputs = len(self.nodes[index].inputs)
                if word in self.symbols[index] and inputs != count:
                    path = _names(self.genome, [index])
                    broken.append(Violation("arity", path, f"{inputs} inputs", f"{count} inputs"))
        return broken

    def of_rule(self, rule: Rule) -> list[Violation]:
        masks, broken = self._reached(rule), list[Violation]()
        for node, ref in self._places(rule):
            if rule.is_some and not masks[ref] & rule.wanted:
                broken.append(self._violation(rule, node, []))
            if not rule.is_some and (wrong := masks[ref] & ~rule.wanted):
                broken.append(self._violation(rule, node, self._witness(rule, masks, ref, wrong)))
        return broken

    def _reached(self, rule: Rule) -> dict[Ref, int]:
        masks: dict[Ref, int] = {stream: int(rule.starts(stream)) for stream in STREAMS}
        masks |= dict.fromkeys(range(len(self.nodes)), 0)
        for index in self.live:
            inputs = self.nodes[index].inputs
            mask = 0 if inputs else int(rule.starts(None))
            for ref in inputs:
                mask |= masks[ref]
            masks[index] = rule.automaton.advance(mask, self.symbols[index]) if mask else 0
        return masks

    def _places(self, rule: Rule) -> list[tuple[int | None, Ref]]:
        if rule.word is None:
            return [(None, len(self.nodes) - 1)]
        places: list[tuple[int | None, Ref]] = []
        for index in self.live:
            slot = rule.slot(self.symbols[index], self.signatures[index])
            inputs = self.nodes[index].inputs
            if slot is not None and slot < len(inputs):
                places.append((index, inputs[slot]))
        return places

    def _witness(self, rule: Rule, masks: dict[Ref, int], ref: Ref, wrong: int) -> list[Ref]:
        """Return a path to ``ref`` that ends in an automaton state of the bit mask ``wrong``."""
        path: list[Ref] = [ref]
        while isinstance(ref, int) and self.nodes[ref].inputs:
            before = rule.automaton.retreat(wrong, self.symbols[ref])
            ref = next(r for r in self.nodes[ref].inputs if masks[r] & before)
            wrong = masks[ref] & before
            path.append(ref)
        return path[::-1]

    def _violation(self, rule: Rule, node: int | None, path: list[Ref]) -> Violation:
        """Return the violation of a rule by ``path``, which ends at ``node`` (None: the output)."""
        end = "output" if node is None else f"{node}:{self.nodes[node].op}.{rule.port}"
        words = " ".join(self.symbols[ref].role for ref in path if isinstance(ref, int))
        found, required = words, f"path from {rule.source} to {rule.to}"
        if rule.match is not None:
            required += f" that reads {rule.match}"
        if rule.is_some:
            found, expected = f"no path from {rule.source}", f"a {required}"
        else:
            expected = f"no {required}" if rule.match is None or rule.none else rule.match
        return Violation(rule.name, _names(self.genome, [*path, end]), found, expected)


def _names(genome: Genome, path: list[Ref]) -> tuple[str, ...]:
    return tuple(f"{ref}:{genome.nodes[ref].op}" if isinstance(ref, int) else ref for ref in path)


def _first_operands(genome: Genome, ref: Ref | None) -> list[Ref]:
    path = [] if ref is None else [ref]
    while path and isinstance(path[-1], int) and genome.nodes[path[-1]].inputs:
        path.append(genome.nodes[path[-1]].inputs[0])
    return path[::-1]
