"""A space and its policy as a tree grammar: what may stand at a place in a graph.

A goal says what is wanted at an input: a kind of tensor, for every rule the states in which
paths may arrive there (``allowed``), and for every rule that asks for some path the states of
which one must arrive (``owed``). A primitive turns the goal at its result into goals at its
operands by running the rules' automata backwards. Whatever is grown from the goal at the output
obeys the policy; nothing is drawn first and rejected later.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from nas.common.errors import SpaceError
from nas.genome import STREAMS
from nas.genome.primitives import Signature, get
from nas.genome.primitives.base import Kind
from nas.space import SearchSpace
from nas.space.validation import Policy, Rule
from nas.space.validation.automaton import Letter

NOT_OWED: Final = -1
NEVER: Final = 10**6
MAX_WORK: Final = 2_000_000  # productions looked at, each once for every rule and every pass


class Goal(NamedTuple):
    """What is wanted at an input; see the module docstring."""

    kind: Kind
    allowed: tuple[int, ...]
    owed: tuple[int, ...]


class State(NamedTuple):
    """Where paths have arrived with a stream or node: a mask for every rule."""

    allowed: tuple[int, ...]
    owed: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """A primitive in one of its signatures, as a production of the grammar."""

    op: str
    signature: Signature
    letter: Letter


class Production(NamedTuple):
    """A reading with the goals at its operands, and the fewest nodes that it takes."""

    reading: Reading
    goals: tuple[Goal, ...]
    size: int


class Grammar:
    """The grammar of a space under a policy.

    A primitive may be read in several ways, which differ in role and kinds: each is a production
    of its own. In a causal space, one that always sees later tokens is left out.

    Raises:
        SpaceError: no genome of the space within its node limit obeys the policy, or there are too
            many ways to obey it.
    """

    def __init__(self, space: SearchSpace, policy: Policy) -> None:
        self.bound = tuple(r for r in policy.rules if r.quantifier != "some")
        self.owing = tuple(r for r in policy.rules if r.quantifier == "some")
        self.readings = tuple(_readings(space))
        self.streams = {name: self._stream(name) for name in STREAMS}
        self._productions: dict[Goal, tuple[Production, ...]] = {}
        self._sizes: dict[Goal, int] = {}
        self._where, self._work = f"space {space.name}, policy {policy.name}", 0
        self.start = self._start()
        if self.size(self.start) > space.nodes.max:
            raise SpaceError(
                f"space {space.name}: no genome of at most {space.nodes.max} nodes obeys policy "
                f"{policy.name}{' and sees no later token' if space.causal else ''}; expected "
                "primitives that score, normalize and aggregate."
            )

    def size(self, goal: Goal) -> int:
        """The fewest nodes that reach a goal; NEVER where nothing does."""
        if goal not in self._sizes:
            self._close(goal)
        return self._sizes[goal]

    def productions(self, goal: Goal) -> tuple[Production, ...]:
        """The ways to reach a goal with a node."""
        if goal not in self._productions:
            self._close(goal)
        return self._productions[goal]

    def leaves(self, goal: Goal) -> list[str]:
        """The streams that reach a goal as they are."""
        if goal.kind is not Kind.TOKENS:
            return []
        return [name for name, state in self.streams.items() if satisfies(state, goal)]

    def advance(self, letter: Letter, states: Sequence[State]) -> State:
        """Where paths arrive with a node, given where they arrive with its operands."""
        allowed = zip(self.bound, zip(*(s.allowed for s in states), strict=True), strict=True)
        owed = zip(self.owing, zip(*(s.owed for s in states), strict=True), strict=True)
        return State(
            tuple(_advanced(rule, letter, masks) for rule, masks in allowed),
            tuple(_advanced(rule, letter, masks) for rule, masks in owed),
        )

    def operand_goals(self, goal: Goal, reading: Reading) -> list[tuple[Goal, ...]]:
        """The goals at the operands; several where different operands can carry a debt."""
        letter = reading.letter
        allowed = [
            rule.automaton.retreat(mask, letter)
            for rule, mask in zip(self.bound, goal.allowed, strict=True)
        ]
        columns = [self._debts(i, rule, goal, reading) for i, rule in enumerate(self.owing)]
        self._check_work(math.prod(map(len, columns)))
        found = []
        for debts in itertools.product(*columns):
            goals = []
            for slot, port in enumerate(reading.signature.inputs):
                here = tuple(
                    mask & _place_mask(rule, reading, slot)
                    for rule, mask in zip(self.bound, allowed, strict=True)
                )
                goals.append(Goal(port.kind, here, tuple(debt[slot] for debt in debts)))
            found.append(tuple(goals))
        return found

    def _debts(self, index: int, rule: Rule, goal: Goal, reading: Reading) -> list[tuple[int, ...]]:
        """For one rule, the ways to share its debts among the operands."""
        letter, ports = reading.letter, len(reading.signature.inputs)
        place = rule.slot(letter, reading.signature)
        own = [rule.automaton.accepting if slot == place else NOT_OWED for slot in range(ports)]
        if goal.owed[index] == NOT_OWED:
            return [tuple(own)]
        carried = rule.automaton.retreat(goal.owed[index], letter)
        ways = []
        for carrier in range(ports):
            mask = carried if own[carrier] == NOT_OWED else carried & own[carrier]
            if mask:
                ways.append((*own[:carrier], mask, *own[carrier + 1 :]))
        return ways

    def _start(self) -> Goal:
        allowed = tuple(
            _wanted(rule) if rule.word is None else rule.automaton.all_states for rule in self.bound
        )
        owed = tuple(
            rule.automaton.accepting if rule.word is None else NOT_OWED for rule in self.owing
        )
        return Goal(Kind.TOKENS, allowed, owed)

    def _stream(self, name: str) -> State:
        return State(
            tuple(int(rule.starts(name)) for rule in self.bound),
            tuple(int(rule.starts(name)) for rule in self.owing),
        )

    def _close(self, start: Goal) -> None:
        """Find every new goal below one, then the fewest nodes that each of them takes."""
        found: dict[Goal, list[tuple[Reading, tuple[Goal, ...]]]] = {}
        queue = [start]
        while queue:
            goal = queue.pop()
            if goal not in found and goal not in self._sizes:
                found[goal] = [
                    (reading, goals)
                    for reading in self.readings
                    if reading.signature.output.kind is goal.kind
                    for goals in self.operand_goals(goal, reading)
                ]
                queue += [g for _, goals in found[goal] for g in goals]
                self._spend(len(found[goal]) * (len(self.bound) + len(self.owing)))
        sizes = self._sizes
        sizes |= {goal: 0 if self.leaves(goal) else NEVER for goal in found}
        has_changed = True
        while has_changed:
            has_changed = False
            for goal, ways in found.items():
                self._spend(len(ways))
                best = min((1 + sum(sizes[g] for g in goals) for _, goals in ways), default=NEVER)
                if best < sizes[goal]:
                    sizes[goal], has_changed = best, True
        for goal, ways in found.items():
            priced = (Production(r, gs, 1 + sum(sizes[g] for g in gs)) for r, gs in ways)
            self._productions[goal] = tuple(p for p in priced if p.size < NEVER)

    def _spend(self, productions: int) -> None:
        """Count productions looked at, so that a policy of a few lines cannot take for ever."""
        self._work += productions
        self._check_work(self._work)

    def _check_work(self, productions: int) -> None:
        if productions > MAX_WORK:
            raise SpaceError(
                f"{self._where}: there are more than {MAX_WORK} ways to obey the rules; expected "
                "fewer or simpler rules."
            )


def satisfies(state: State, goal: Goal) -> bool:
    """Whether what arrives with a stream or node may stand where a goal is wanted."""
    return all(
        not mask & ~allowed for mask, allowed in zip(state.allowed, goal.allowed, strict=True)
    ) and all(
        owed == NOT_OWED or mask & owed for mask, owed in zip(state.owed, goal.owed, strict=True)
    )


def _advanced(rule: Rule, letter: Letter, masks: Sequence[int]) -> int:
    mask = 0
    for one in masks:
        mask |= one
    return rule.automaton.advance(mask, letter) if mask else 0


def _wanted(rule: Rule) -> int:
    """The states in which a path may arrive at the rule's place."""
    accepting = rule.automaton.accepting
    return accepting if rule.quantifier == "every" else rule.automaton.all_states & ~accepting


def _place_mask(rule: Rule, reading: Reading, slot: int) -> int:
    is_place = rule.slot(reading.letter, reading.signature) == slot
    return _wanted(rule) if is_place else rule.automaton.all_states


def _readings(space: SearchSpace) -> Iterator[Reading]:
    for op in space.primitives:
        if next(space.combinations(op), None) is None:
            if space.causal:
                continue
            raise SpaceError(
                f"space {space.name}, primitives: no combination of {op}'s parameters goes "
                "together; expected choices that do not exclude each other."
            )
        for signature in get(op).signatures:
            yield Reading(op, signature, Letter(op, signature.role.value))
