"""Judge a genome: types first, then a policy's path rules, in one pass over the DAG.

Cost: nodes times rules; a path is followed backwards only once a rule is broken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nas.types import Problem, Typing, infer
from nas.validation.automaton import Letter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nas.genome import Genome, Ref
    from nas.validation.policy import Policy, Rule


@dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes:
        rule: the policy's rule, or "arity", "types", "heads", "widths", "output", "empty".
        path: the witness, from a stream to the place where the rule looks.
        found, expected: what the path reads, what the rule wants.
        repair: the nearest legal genome, where one was looked for and found.
    """

    rule: str
    path: tuple[str, ...]
    found: str
    expected: str
    repair: Genome | None = None

    @property
    def message(self) -> str:
        """One sentence that names place, found and expected."""
        place = " -> ".join(self.path) or "the graph"
        return f"{self.rule}: {place} reads {self.found!r}; expected {self.expected!r}."

    def to_dict(self) -> dict[str, Any]:
        """The JSON answer of ``nas validate``."""
        return {
            "rule": self.rule,
            "path": list(self.path),
            "found": self.found,
            "expected": self.expected,
            "message": self.message,
            "repair": self.repair.to_dict() if self.repair else None,
        }

    def with_repair(self, repair: Genome | None) -> Violation:
        """The same violation with its repair."""
        return replace(self, repair=repair)


def validate(genome: Genome, policy: Policy) -> tuple[Violation, ...]:
    """All violations of a genome whose primitives exist; empty for a legal one.

    An ill-typed genome is not judged by the policy as well: its roles would be guesses.

    Raises:
        GenomeError: a node names a primitive that does not exist.
    """
    typing = infer(genome)
    if policy.types and typing.problems:
        return tuple(_typed(genome, problem) for problem in typing.problems)
    if not genome.nodes:
        return (_typed(genome, typing.problems[0]),)
    return judge(genome, policy, typing)


def is_legal(genome: Genome, policy: Policy) -> bool:
    """Whether a genome has no violation."""
    return not validate(genome, policy)


def judge(genome: Genome, policy: Policy, typing: Typing) -> tuple[Violation, ...]:
    """The violations of the policy's own rules; see ``validate``."""
    live = genome.live()
    letters = [Letter(n.op, typing.role(i).value) for i, n in enumerate(genome.nodes)]
    violations = _arity(genome, policy, live, letters)
    for rule in policy.rules:
        violations += _broken(genome, rule, live, letters)
    return tuple(violations)


def reach(genome: Genome, rule: Rule, live: Sequence[int], letters: Sequence[Letter]) -> list[int]:
    """For each node the mask of states that the rule's paths reach with it."""
    automaton = rule.automaton
    source = {stream: int(rule.starts(stream)) for stream in ("q", "k", "v")}
    leafless = int(rule.starts(None))
    masks = [0] * len(genome.nodes)
    for index in live:
        inputs = genome.nodes[index].inputs
        mask = 0 if inputs else leafless
        for ref in inputs:
            mask |= masks[ref] if isinstance(ref, int) else source[ref]
        masks[index] = automaton.advance(mask, letters[index]) if mask else 0
    return masks


def _broken(
    genome: Genome, rule: Rule, live: Sequence[int], letters: Sequence[Letter]
) -> list[Violation]:
    """The places at which a rule is broken, each with a witness."""
    masks = reach(genome, rule, live, letters)
    accepting = rule.automaton.accepting
    broken = []
    for node, ref in _places(genome, rule, live, letters):
        mask = masks[ref] if isinstance(ref, int) else int(rule.starts(ref))
        if rule.quantifier == "some":
            if not mask & accepting:
                broken.append(_missing(genome, rule, node))
            continue
        wrong = mask & ~accepting if rule.quantifier == "every" else mask & accepting
        if wrong:
            path = _witness(genome, rule, masks, letters, ref, wrong)
            broken.append(_violation(genome, rule, node, path, letters))
    return broken


def _places(
    genome: Genome, rule: Rule, live: Sequence[int], letters: Sequence[Letter]
) -> list[tuple[int | None, Ref]]:
    """Where a rule looks: the reading node (None for the output) and what it reads there."""
    if rule.word is None:
        return [(None, len(genome.nodes) - 1)]
    found: list[tuple[int | None, Ref]] = []
    for index in live:
        slot = rule.slot(letters[index])
        inputs = genome.nodes[index].inputs
        if slot is not None and slot < len(inputs):
            found.append((index, inputs[slot]))
    return found


def _witness(
    genome: Genome,
    rule: Rule,
    masks: Sequence[int],
    letters: Sequence[Letter],
    ref: Ref,
    wrong: int,
) -> list[Ref]:
    """A path from a source to ``ref`` that ends in one of the ``wrong`` states."""
    path: list[Ref] = [ref]
    while isinstance(ref, int):
        before = rule.automaton.retreat(wrong, letters[ref])
        for previous in genome.nodes[ref].inputs:
            mask = masks[previous] if isinstance(previous, int) else int(rule.starts(previous))
            if mask & before:
                ref, wrong = previous, mask & before
                path.append(ref)
                break
        else:
            break  # a node without inputs
    return path[::-1]


def _violation(
    genome: Genome, rule: Rule, node: int | None, path: list[Ref], letters: Sequence[Letter]
) -> Violation:
    words = [letters[ref].role for ref in path if isinstance(ref, int)]
    if rule.quantifier == "none":
        expected = f"no path from {rule.source} to {rule.place}"
        expected += (
            "" if rule.automaton.pattern == ".*" else f" that reads {rule.automaton.pattern}"
        )
    else:
        expected = rule.automaton.pattern
    return Violation(
        rule.name, _names(genome, [*path, *_end(genome, rule, node)]), " ".join(words), expected
    )


def _missing(genome: Genome, rule: Rule, node: int | None) -> Violation:
    pattern = rule.automaton.pattern
    reading = "" if pattern == ".*" else f" that reads {pattern}"
    return Violation(
        rule.name,
        _names(genome, _end(genome, rule, node)),
        f"no path from {rule.source}",
        f"a path from {rule.source} to {rule.place}{reading}",
    )


def _end(genome: Genome, rule: Rule, node: int | None) -> list[Ref]:
    if node is None:
        return ["output"]
    return [f"{node}:{genome.nodes[node].op}.{rule.port}"]


def _names(genome: Genome, path: Sequence[Ref]) -> tuple[str, ...]:
    return tuple(f"{ref}:{genome.nodes[ref].op}" if isinstance(ref, int) else ref for ref in path)


def _arity(
    genome: Genome, policy: Policy, live: Sequence[int], letters: Sequence[Letter]
) -> list[Violation]:
    found = []
    for word, count in policy.arity.items():
        for index in live:
            inputs = len(genome.nodes[index].inputs)
            if word in letters[index] and inputs != count:
                path = _names(genome, [index])
                found.append(Violation("arity", path, f"{inputs} inputs", f"{count} inputs"))
    return found


def _typed(genome: Genome, problem: Problem) -> Violation:
    path = () if problem.node is None else _names(genome, _origin(genome, problem.node))
    return Violation(problem.rule, path, problem.found, problem.expected)


def _origin(genome: Genome, node: int) -> list[Ref]:
    """A path to a node, from a stream along first operands."""
    path: list[Ref] = [node]
    while isinstance(path[-1], int) and genome.nodes[path[-1]].inputs:
        path.append(genome.nodes[path[-1]].inputs[0])
    return path[::-1]
