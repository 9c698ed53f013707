"""A graph under construction: nodes that know where the policy's paths arrive with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nas.genome import Genome, Node, ParamValue, Projections, Ref, Visibility
from nas.genome.types import infer
from nas.space.validation.automaton import Letter
from nas.space.variation.grammar import NOT_OWED, Goal, Grammar, Reading, State, satisfies


class Vertex(NamedTuple):
    """A node of a draft: its production, what it reads, its parameters and its state."""

    reading: Reading
    inputs: tuple[Ref, ...]
    params: tuple[tuple[str, ParamValue], ...]
    state: State


@dataclass
class Draft:
    """Vertices in topological order; the last one that is live is the output."""

    grammar: Grammar
    vertices: list[Vertex] = field(default_factory=list)

    @classmethod
    def of(cls, genome: Genome, grammar: Grammar) -> Draft:
        """The draft of a genome that type-checks."""
        draft, typing = cls(grammar), infer(genome)
        for index, node in enumerate(genome.nodes):
            signature = typing.signatures[index]
            reading = Reading(node.op, signature, Letter(node.op, signature.role.value))
            draft.add(reading, node.inputs, node.params)
        return draft

    def add(
        self, reading: Reading, inputs: Sequence[Ref], params: tuple[tuple[str, ParamValue], ...]
    ) -> int:
        """Append a node; returns its index."""
        state = self.grammar.advance(reading.letter, [self.state(ref) for ref in inputs])
        self.vertices.append(Vertex(reading, tuple(inputs), params, state))
        return len(self.vertices) - 1

    def state(self, ref: Ref) -> State:
        """Where paths arrive with a stream or node."""
        return self.grammar.streams[ref] if isinstance(ref, str) else self.vertices[ref].state

    def fits(self, ref: Ref, goal: Goal) -> bool:
        """Whether a stream or node may stand where a goal is wanted."""
        if isinstance(ref, str):
            return ref in self.grammar.leaves(goal)
        vertex = self.vertices[ref]
        return vertex.reading.signature.output.kind is goal.kind and satisfies(vertex.state, goal)

    def edges(self) -> list[tuple[int, int]]:
        """Every (reader, slot) in the draft."""
        return [(i, s) for i, v in enumerate(self.vertices) for s in range(len(v.inputs))]

    def ancestors(self, ref: Ref) -> set[int]:
        """The nodes that a stream or node is computed from, itself included."""
        found: set[int] = set()
        stack = [ref]
        while stack:
            at = stack.pop()
            if isinstance(at, int) and at not in found:
                found.add(at)
                stack += self.vertices[at].inputs
        return found

    def goals(self) -> list[Goal]:
        """For each node the goal that its readers set together, debts left aside."""
        grammar = self.grammar
        allowed = [[r.automaton.all_states for r in grammar.bound] for _ in self.vertices]
        allowed[-1] = list(grammar.start.allowed)
        found: list[Goal] = [grammar.start] * len(self.vertices)
        for index in range(len(self.vertices) - 1, -1, -1):
            vertex = self.vertices[index]
            kind = vertex.reading.signature.output.kind
            found[index] = Goal(kind, tuple(allowed[index]), (NOT_OWED,) * len(grammar.owing))
            for slot, ref in enumerate(vertex.inputs):
                if isinstance(ref, int):
                    goal = self.below(found[index], vertex.reading, slot)
                    allowed[ref] = [a & b for a, b in zip(allowed[ref], goal.allowed, strict=True)]
        return found

    def below(self, goal: Goal, reading: Reading, slot: int) -> Goal:
        """The goal at an operand, debts left aside."""
        free = goal._replace(owed=(NOT_OWED,) * len(goal.owed))
        operand = self.grammar.operand_goals(free, reading)[0][slot]
        return operand._replace(owed=free.owed)

    def edge_goal(self, reader: int, slot: int, goals: Sequence[Goal]) -> Goal:
        """What is wanted at an edge, with the debts that only this edge can pay."""
        goal = self.below(goals[reader], self.vertices[reader].reading, slot)
        owed = tuple(self._owed(i, reader, slot) for i in range(len(self.grammar.owing)))
        return goal._replace(owed=owed)

    def _owed(self, index: int, reader: int, slot: int) -> int:
        """The states of which one must arrive by an edge, for one rule that asks for a path."""
        owed = NOT_OWED
        for place in self._places(index):
            arriving = self._arriving(index, place, cut=(reader, slot))
            if not arriving & self.grammar.owing[index].automaton.accepting:
                mask = self._leading(index, place, (reader, slot))
                owed = mask if owed == NOT_OWED else owed & mask
        return owed

    def _places(self, index: int) -> Iterator[tuple[int, int]]:
        """The edges at which a rule asks for a path; the output has the slot -1."""
        rule = self.grammar.owing[index]
        if rule.word is None:
            yield len(self.vertices) - 1, -1
        for at, vertex in enumerate(self.vertices):
            slot = rule.slot(vertex.reading.letter, vertex.reading.signature)
            if slot is not None:
                yield at, slot

    def _arriving(self, index: int, place: tuple[int, int], cut: tuple[int, int]) -> int:
        """The states in which paths arrive at a place when an edge is cut."""
        automaton = self.grammar.owing[index].automaton
        masks: list[int] = []
        for at, vertex in enumerate(self.vertices):
            mask = 0
            for slot, ref in enumerate(vertex.inputs):
                arrives = masks[ref] if isinstance(ref, int) else self.state(ref).owed[index]
                arrives = 0 if (at, slot) == cut else arrives
                if (at, slot) == place:
                    return arrives
                mask |= arrives
            masks.append(automaton.advance(mask, vertex.reading.letter) if mask else 0)
        return masks[-1]

    def _leading(self, index: int, place: tuple[int, int], edge: tuple[int, int]) -> int:
        """The states at an edge from which some path leads to an accepting state at a place."""
        automaton = self.grammar.owing[index].automaton
        masks = [0] * len(self.vertices)
        if place[1] < 0:
            masks[place[0]] = automaton.accepting
        for at in range(len(self.vertices) - 1, -1, -1):
            vertex = self.vertices[at]
            back = automaton.retreat(masks[at], vertex.reading.letter) if masks[at] else 0
            for slot, ref in enumerate(vertex.inputs):
                here = back | (automaton.accepting if (at, slot) == place else 0)
                if (at, slot) == edge:
                    return here
                if isinstance(ref, int):
                    masks[ref] |= here
        return 0

    def genome(self, projections: Projections, placement: str, visibility: Visibility) -> Genome:
        """The genome of what reaches the last vertex."""
        nodes = tuple(Node(v.reading.op, v.inputs, v.params) for v in self.vertices)
        return Genome(nodes, projections, placement, visibility).pruned()
