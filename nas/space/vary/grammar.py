"""A tree grammar that generates the graphs of a search space that obey path rules (a policy).

A nonterminal is a requirement (``Goal``) on an operand. A production selects a primitive, and turns
the requirement on its result into requirements on its operands by running the automata of the path
rules backwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from nas.common.errors import SpaceError
from nas.genome import STREAMS
from nas.genome.primitives import Signature, get
from nas.genome.primitives.base import Kind
from nas.space import SearchSpace
from nas.space.rules import Policy, Rule
from nas.space.rules.automaton import Symbol

ANY: Final = -1  # the bit mask of all states
NEVER: Final = 10**6

# For each rule, a bit mask of automaton states, such as those that paths to a node reach.
Masks = tuple[int, ...]


class Goal(NamedTuple):
    """A requirement on an operand or the output: the kind of tensor, and states of paths to it.

    All paths must reach automaton states in ``masks``; for a rule with ``some``, one path must,
    unless the mask is ``ANY``.
    """

    kind: Kind
    masks: Masks


@dataclass(frozen=True)
class OpSignature:
    """A primitive with one of its signatures, and its symbol in automata."""

    op: str
    signature: Signature
    symbol: Symbol


class Production(NamedTuple):
    """An operation, the requirements on its operands, and the size of the smallest subgraph."""

    operation: OpSignature
    goals: tuple[Goal, ...]
    size: int


class Grammar:
    """The grammar of a search space and a policy; SpaceError if no genome obeys the rules.

    ``op_signatures`` are the primitives of the space, without those that see later tokens if it is
    causal; ``streams`` has the states at q, k and v, ``start`` the requirement on the output.
    """

    def __init__(self, space: SearchSpace, policy: Policy) -> None:
        self.space, self.rules = space, policy.rules
        self.op_signatures = tuple(_op_signatures(space))
        self.streams = {s: tuple(int(rule.starts(s)) for rule in self.rules) for s in STREAMS}
        self._productions: dict[Goal, tuple[Production, ...]] = {}
        self._sizes: dict[Goal, int] = {}
        wanted = (rule.wanted if rule.word is None else ANY for rule in self.rules)
        self.start = Goal(Kind.TOKENS, tuple(wanted))
        if self.size(self.start) > space.nodes.max:
            raise SpaceError(
                f"space {space.name}: no genome of at most {space.nodes.max} nodes obeys policy "
                f"{policy.name}{' and sees no later token' if space.causal else ''}; expected "
                "primitives that score, normalize and aggregate."
            )

    def size(self, goal: Goal) -> int:
        """Return the fewest nodes that meet ``goal``: 0 for a stream, ``NEVER`` if nothing does."""
        if goal not in self._sizes:
            self._close(goal)
        return self._sizes[goal]

    def productions(self, goal: Goal) -> tuple[Production, ...]:
        """Return the productions of ``goal``."""
        if goal not in self._productions:
            self._close(goal)
        return self._productions[goal]

    def leaves(self, goal: Goal) -> list[str]:
        """Return the names of the streams that meet ``goal``."""
        if goal.kind is not Kind.TOKENS:
            return []
        return [name for name, masks in self.streams.items() if self.satisfies(masks, goal)]

    def satisfies(self, masks: Masks, goal: Goal) -> bool:
        """Return whether a stream or node with these automaton states meets ``goal``."""
        return all(
            (wanted == ANY or mask & wanted) if rule.is_some else not mask & ~wanted
            for rule, mask, wanted in zip(self.rules, masks, goal.masks, strict=True)
        )

    def advance(self, symbol: Symbol, operands: Sequence[Masks]) -> Masks:
        """Return the automaton states at a node, from those at its operands."""
        joined = (reduce(or_, masks) for masks in zip(*operands, strict=True))
        return tuple(
            rule.automaton.advance(mask, symbol) if mask else 0
            for rule, mask in zip(self.rules, joined, strict=True)
        )

    def operand_goals(self, goal: Goal, operation: OpSignature) -> Iterator[tuple[Goal, ...]]:
        """Yield requirements on the operands of an operation whose result must meet ``goal``.

        There is one tuple for each choice of the operands from which required paths come.
        """
        rules = zip(self.rules, goal.masks, strict=True)
        for ways in itertools.product(*(_splits(rule, mask, operation) for rule, mask in rules)):
            yield tuple(
                Goal(port.kind, tuple(way[slot] for way in ways))
                for slot, port in enumerate(operation.signature.inputs)
            )

    def _close(self, start: Goal) -> None:
        """Store productions and sizes of ``start`` and of all requirements that it leads to."""
        ways_of: dict[Goal, list[tuple[OpSignature, tuple[Goal, ...]]]] = {}
        queue = [start]
        while queue:
            goal = queue.pop()
            if goal not in ways_of and goal not in self._sizes:
                ways_of[goal] = [
                    (operation, goals)
                    for operation in self.op_signatures
                    if operation.signature.output.kind is goal.kind
                    for goals in self.operand_goals(goal, operation)
                ]
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


def _splits(rule: Rule, mask: int, operation: OpSignature) -> list[Masks]:
    """Return the masks of the operands, for each way in which they can meet a rule."""
    place = rule.slot(operation.symbol, operation.signature)
    slots = range(len(operation.signature.inputs))
    own = tuple(rule.wanted if slot == place else ANY for slot in slots)
    if rule.is_some and mask == ANY:
        return [own]
    back = rule.automaton.retreat(mask, operation.symbol)
    if not rule.is_some:
        return [tuple(back & wanted for wanted in own)]
    carriers = (slot for slot in slots if back & own[slot])
    return [(*own[:slot], back & own[slot], *own[slot + 1 :]) for slot in carriers]


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
