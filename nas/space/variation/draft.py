"""A graph under construction, with the states of the policy's automata at each node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nas.genome import Genome, Node, ParamValue, Projections, Ref, Visibility
from nas.genome.types import infer
from nas.space.validation.automaton import Letter
from nas.space.variation.grammar import NOT_REQUIRED, Goal, Grammar, OpSignature, State, satisfies


class Vertex(NamedTuple):
    """A node of a draft: operation, operands, parameters and state."""

    operation: OpSignature
    inputs: tuple[Ref, ...]
    params: tuple[tuple[str, ParamValue], ...]
    state: State


@dataclass
class Draft:
    """Vertices in topological order; the last one is the output."""

    grammar: Grammar
    vertices: list[Vertex] = field(default_factory=list)

    @classmethod
    def of(cls, genome: Genome, grammar: Grammar) -> Draft:
        """The draft of a genome that type-checks."""
        draft, typing = cls(grammar), infer(genome)
        for index, node in enumerate(genome.nodes):
            signature = typing.signatures[index]
            operation = OpSignature(node.op, signature, Letter(node.op, signature.role.value))
            draft.add(operation, node.inputs, node.params)
        return draft

    def add(
        self,
        operation: OpSignature,
        inputs: Sequence[Ref],
        params: tuple[tuple[str, ParamValue], ...],
    ) -> int:
        """Append a node; returns its index."""
        state = self.grammar.advance(operation.letter, [self.state(ref) for ref in inputs])
        self.vertices.append(Vertex(operation, tuple(inputs), params, state))
        return len(self.vertices) - 1

    def state(self, ref: Ref) -> State:
        """The state of a stream or node."""
        return self.grammar.streams[ref] if isinstance(ref, str) else self.vertices[ref].state

    def fits(self, ref: Ref, goal: Goal) -> bool:
        """Whether a stream or node meets a goal."""
        if isinstance(ref, str):
            return ref in self.grammar.leaves(goal)
        vertex = self.vertices[ref]
        return vertex.operation.signature.output.kind is goal.kind and satisfies(vertex.state, goal)

    def edges(self) -> list[tuple[int, int]]:
        """Every (reader, slot) in the draft."""
        return [(i, s) for i, v in enumerate(self.vertices) for s in range(len(v.inputs))]

    def ancestors(self, ref: Ref) -> set[int]:
        """The node and all nodes that its result depends on."""
        ancestors: set[int] = set()
        stack = [ref]
        while stack:
            at = stack.pop()
            if isinstance(at, int) and at not in ancestors:
                ancestors.add(at)
                stack += self.vertices[at].inputs
        return ancestors

    def goals(self) -> list[Goal]:
        """For each node the goal that satisfies all its readers, without required states."""
        grammar = self.grammar
        allowed = [[r.automaton.all_states for r in grammar.path_rules] for _ in self.vertices]
        allowed[-1] = list(grammar.start.allowed)
        goals: list[Goal] = [grammar.start] * len(self.vertices)
        for index in range(len(self.vertices) - 1, -1, -1):
            vertex = self.vertices[index]
            kind = vertex.operation.signature.output.kind
            goals[index] = Goal(
                kind, tuple(allowed[index]), (NOT_REQUIRED,) * len(grammar.some_rules)
            )
            for slot, ref in enumerate(vertex.inputs):
                if isinstance(ref, int):
                    goal = self.below(goals[index], vertex.operation, slot)
                    allowed[ref] = [a & b for a, b in zip(allowed[ref], goal.allowed, strict=True)]
        return goals

    def below(self, goal: Goal, operation: OpSignature, slot: int) -> Goal:
        """The goal at an operand, without required states."""
        free = goal._replace(required=(NOT_REQUIRED,) * len(goal.required))
        operand = self.grammar.operand_goals(free, operation)[0][slot]
        return operand._replace(required=free.required)

    def edge_goal(self, reader: int, slot: int, goals: Sequence[Goal]) -> Goal:
        """The goal at an edge, with the required states that no other edge supplies."""
        goal = self.below(goals[reader], self.vertices[reader].operation, slot)
        required = tuple(
            self._required(i, reader, slot) for i in range(len(self.grammar.some_rules))
        )
        return goal._replace(required=required)

    def _required(self, index: int, reader: int, slot: int) -> int:
        """The states of which an edge must supply one, for one rule with ``some``."""
        required = NOT_REQUIRED
        for place in self._places(index):
            arriving = self._arriving(index, place, cut=(reader, slot))
            if not arriving & self.grammar.some_rules[index].automaton.accepting:
                mask = self._leading(index, place, (reader, slot))
                required = mask if required == NOT_REQUIRED else required & mask
        return required

    def _places(self, index: int) -> Iterator[tuple[int, int]]:
        """The edges to which a rule requires a path; the output has the slot -1."""
        rule = self.grammar.some_rules[index]
        if rule.word is None:
            yield len(self.vertices) - 1, -1
        for at, vertex in enumerate(self.vertices):
            slot = rule.slot(vertex.operation.letter, vertex.operation.signature)
            if slot is not None:
                yield at, slot

    def _arriving(self, index: int, place: tuple[int, int], cut: tuple[int, int]) -> int:
        """The states in which paths arrive at an edge if the edge ``cut`` is removed."""
        automaton = self.grammar.some_rules[index].automaton
        masks: list[int] = []
        for at, vertex in enumerate(self.vertices):
            mask = 0
            for slot, ref in enumerate(vertex.inputs):
                arrives = masks[ref] if isinstance(ref, int) else self.state(ref).required[index]
                arrives = 0 if (at, slot) == cut else arrives
                if (at, slot) == place:
                    return arrives
                mask |= arrives
            masks.append(automaton.advance(mask, vertex.operation.letter) if mask else 0)
        return masks[-1]

    def _leading(self, index: int, place: tuple[int, int], edge: tuple[int, int]) -> int:
        """The states at an edge from which a path leads to an accepting state at a place."""
        automaton = self.grammar.some_rules[index].automaton
        masks = [0] * len(self.vertices)
        if place[1] < 0:
            masks[place[0]] = automaton.accepting
        for at in range(len(self.vertices) - 1, -1, -1):
            vertex = self.vertices[at]
            back = automaton.retreat(masks[at], vertex.operation.letter) if masks[at] else 0
            for slot, ref in enumerate(vertex.inputs):
                states = back | (automaton.accepting if (at, slot) == place else 0)
                if (at, slot) == edge:
                    return states
                if isinstance(ref, int):
                    masks[ref] |= states
        return 0

    def genome(self, projections: Projections, placement: str, visibility: Visibility) -> Genome:
        """The genome of the vertices that reach the last one."""
        nodes = tuple(Node(v.operation.op, v.inputs, v.params) for v in self.vertices)
        return Genome(nodes, projections, placement, visibility).pruned()
