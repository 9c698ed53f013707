"""A tree grammar that generates the graphs of a search space that obey path rules (a policy).

Each path rule has an automaton that reads the nodes of paths. A nonterminal of the grammar is a
requirement (``Goal``) on an operand. It consists of

- the kind of tensor,
- for each rule with ``from`` or ``none``, the automaton states that paths may reach (``allowed``),
- for each rule with ``some``, states of which paths must reach at least one (``required``).

A production selects a primitive. It turns the requirement on the primitive's result into
requirements on its operands, by running the automata backwards. The start symbol is the requirement
on the output.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from nas.common.errors import SpaceError
from nas.genome import STREAMS
from nas.genome.primitives import Signature, get
from nas.genome.primitives.base import Kind
from nas.space import SearchSpace
from nas.space.validation import Policy, Rule
from nas.space.validation.automaton import Symbol

NOT_REQUIRED: Final = -1
NEVER: Final = 10**6
MAX_WAYS: Final = 200_000  # productions of all goals


class Goal(NamedTuple):
    """A requirement on an operand or the output, so that the genome obeys its path rules.

    Attributes:
        kind: kind of tensor.
        allowed: for each rule with ``from`` or ``none``, a bit mask of the automaton states that
            paths to the operand may reach.
        required: for each rule with ``some``, a bit mask of automaton states of which paths must
            reach at least one; ``NOT_REQUIRED`` if they need not reach any.
    """

    kind: Kind
    allowed: tuple[int, ...]
    required: tuple[int, ...]


class State(NamedTuple):
    """The states of path-rule automata that paths to a stream or node reach.

    Attributes:
        allowed: a bit mask of states for each rule with ``from`` or ``none``.
        required: a bit mask of states for each rule with ``some``.
    """

    allowed: tuple[int, ...]
    required: tuple[int, ...]


@dataclass(frozen=True)
class OpSignature:
    """A primitive with one of its signatures, and its symbol in the path rules' automata."""

    op: str
    signature: Signature
    symbol: Symbol


class Production(NamedTuple):
    """A production of the grammar: an operation whose result meets a requirement (``Goal``).

    Attributes:
        operation: primitive with one of its signatures, which computes the result.
        goals: requirement on each operand.
        size: smallest number of nodes of a subgraph with this operation and such operands.
    """

    operation: OpSignature
    goals: tuple[Goal, ...]
    size: int


class Grammar:
    """A grammar that generates the graphs of a search space that obey the path rules of a policy.

    In a causal space, primitives that see later tokens with all their parameters are omitted.

    Attributes:
        path_rules: rules with ``from`` or ``none``, which are about all paths.
        some_rules: rules with ``some``, which require a path.
        op_signatures: all primitives of the space, each of them once for each signature.
        streams: automaton states at the streams ``q``, ``k`` and ``v``.
        start: requirement on the output.

    Raises:
        SpaceError: no genome of the space obeys the rules, or the grammar is too large.
    """

    def __init__(self, space: SearchSpace, policy: Policy) -> None:
        self.path_rules = tuple(r for r in policy.rules if r.quantifier != "some")
        self.some_rules = tuple(r for r in policy.rules if r.quantifier == "some")
        self.op_signatures = tuple(_op_signatures(space))
        self.streams = {name: self._stream(name) for name in STREAMS}
        self._productions: dict[Goal, tuple[Production, ...]] = {}
        self._sizes: dict[Goal, int] = {}
        self._where, self._count = f"space {space.name}, policy {policy.name}", 0
        self.start = self._start()
        if self.size(self.start) > space.nodes.max:
            raise SpaceError(
                f"space {space.name}: no genome of at most {space.nodes.max} nodes obeys policy "
                f"{policy.name}{' and sees no later token' if space.causal else ''}; expected "
                "primitives that score, normalize and aggregate."
            )

    def size(self, goal: Goal) -> int:
        """Return the smallest number of nodes of a graph whose result meets ``goal``.

        It is 0 if a stream meets ``goal``, and ``NEVER`` if nothing meets it.
        """
        if goal not in self._sizes:
            self._close(goal)
        return self._sizes[goal]

    def productions(self, goal: Goal) -> tuple[Production, ...]:
        """Return all ways in which the result of an operation can meet the requirement ``goal``."""
        if goal not in self._productions:
            self._close(goal)
        return self._productions[goal]

    def leaves(self, goal: Goal) -> list[str]:
        """Return the names of the streams that meet the requirement ``goal`` on an operand."""
        if goal.kind is not Kind.TOKENS:
            return []
        return [name for name, state in self.streams.items() if satisfies(state, goal)]

    def advance(self, symbol: Symbol, states: Sequence[State]) -> State:
        """Return the automaton states at a node with this symbol and these operand states."""
        allowed = zip(self.path_rules, zip(*(s.allowed for s in states), strict=True), strict=True)
        required = zip(
            self.some_rules, zip(*(s.required for s in states), strict=True), strict=True
        )
        return State(
            tuple(_advanced(rule, symbol, masks) for rule, masks in allowed),
            tuple(_advanced(rule, symbol, masks) for rule, masks in required),
        )

    def operand_goals(self, goal: Goal, operation: OpSignature) -> Iterator[tuple[Goal, ...]]:
        """Yield requirements on the operands of an operation whose result must meet ``goal``.

        A path that a rule requires can come from any operand. There is one tuple of requirements
        for each choice of the operands that supply the required paths.
        """
        symbol = operation.symbol
        allowed = [
            rule.automaton.retreat(mask, symbol)
            for rule, mask in zip(self.path_rules, goal.allowed, strict=True)
        ]
        columns = [
            self._required_splits(i, rule, goal, operation)
            for i, rule in enumerate(self.some_rules)
        ]
        for splits in itertools.product(*columns):
            goals = []
            for slot, port in enumerate(operation.signature.inputs):
                masks = tuple(
                    mask & _place_mask(rule, operation, slot)
                    for rule, mask in zip(self.path_rules, allowed, strict=True)
                )
                goals.append(Goal(port.kind, masks, tuple(split[slot] for split in splits)))
            yield tuple(goals)

    def _required_splits(
        self, index: int, rule: Rule, goal: Goal, operation: OpSignature
    ) -> list[tuple[int, ...]]:
        """Return the ways in which operands can supply the path that one path rule requires.

        Each way is a tuple with a bit mask of automaton states for each operand.

        Args:
            index: index of ``rule`` in ``some_rules``.
        """
        symbol, ports = operation.symbol, len(operation.signature.inputs)
        place = rule.slot(symbol, operation.signature)
        masks = [
            rule.automaton.accepting if slot == place else NOT_REQUIRED for slot in range(ports)
        ]
        if goal.required[index] == NOT_REQUIRED:
            return [tuple(masks)]
        carried = rule.automaton.retreat(goal.required[index], symbol)
        ways = []
        for carrier in range(ports):
            mask = carried if masks[carrier] == NOT_REQUIRED else carried & masks[carrier]
            if mask:
                ways.append((*masks[:carrier], mask, *masks[carrier + 1 :]))
        return ways

    def _start(self) -> Goal:
        allowed = tuple(
            _wanted(rule) if rule.word is None else rule.automaton.all_states
            for rule in self.path_rules
        )
        required = tuple(
            rule.automaton.accepting if rule.word is None else NOT_REQUIRED
            for rule in self.some_rules
        )
        return Goal(Kind.TOKENS, allowed, required)

    def _stream(self, name: str) -> State:
        return State(
            tuple(int(rule.starts(name)) for rule in self.path_rules),
            tuple(int(rule.starts(name)) for rule in self.some_rules),
        )

    def _close(self, start: Goal) -> None:
        """Store productions and sizes of ``start`` and of all requirements that it leads to."""
        ways_of: dict[Goal, list[tuple[OpSignature, tuple[Goal, ...]]]] = {}
        queue = [start]
        while queue:
            goal = queue.pop()
            if goal not in ways_of and goal not in self._sizes:
                ways_of[goal] = list(self._ways(goal))
                queue += [g for _, goals in ways_of[goal] for g in goals]
        sizes = self._sizes
        sizes |= {goal: 0 if self.leaves(goal) else NEVER for goal in ways_of}
        has_changed = True
        while has_changed:
            has_changed = False
            for goal, ways in ways_of.items():
                best = min((1 + sum(sizes[g] for g in goals) for _, goals in ways), default=NEVER)
                if best < sizes[goal]:
                    sizes[goal], has_changed = best, True
        for goal, ways in ways_of.items():
            priced = (Production(r, gs, 1 + sum(sizes[g] for g in gs)) for r, gs in ways)
            self._productions[goal] = tuple(p for p in priced if p.size < NEVER)

    def _ways(self, goal: Goal) -> Iterator[tuple[OpSignature, tuple[Goal, ...]]]:
        for operation in self.op_signatures:
            if operation.signature.output.kind is goal.kind:
                for goals in self.operand_goals(goal, operation):
                    self._count += 1
                    if self._count > MAX_WAYS:
                        raise SpaceError(
                            f"{self._where}: there are more than {MAX_WAYS} ways to obey the "
                            "rules; expected fewer or simpler rules."
                        )
                    yield operation, goals


def satisfies(state: State, goal: Goal) -> bool:
    """Return whether the automaton states at a stream or node are as ``goal`` requires."""
    return all(
        not mask & ~allowed for mask, allowed in zip(state.allowed, goal.allowed, strict=True)
    ) and all(
        required == NOT_REQUIRED or mask & required
        for mask, required in zip(state.required, goal.required, strict=True)
    )


def _advanced(rule: Rule, symbol: Symbol, masks: Sequence[int]) -> int:
    mask = 0
    for operand_mask in masks:
        mask |= operand_mask
    return rule.automaton.advance(mask, symbol) if mask else 0


def _wanted(rule: Rule) -> int:
    """Return the automaton states that paths of a ``from`` or ``none`` rule may end in."""
    accepting = rule.automaton.accepting
    return accepting if rule.quantifier == "every" else rule.automaton.all_states & ~accepting


def _place_mask(rule: Rule, operation: OpSignature, slot: int) -> int:
    is_place = rule.slot(operation.symbol, operation.signature) == slot
    return _wanted(rule) if is_place else rule.automaton.all_states


def _op_signatures(space: SearchSpace) -> Iterator[OpSignature]:
    for op in space.primitives:
        if next(space.combinations(op), None) is None:
            if space.causal:
                continue
            raise SpaceError(
                f"space {space.name}, primitives: no combination of {op}'s parameters goes "
                "together; expected choices that do not exclude each other."
            )
        for signature in get(op).signatures:
            yield OpSignature(op, signature, Symbol(op, signature.role.value))
