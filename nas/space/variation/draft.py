"""The mutable graph that variation changes, with the states of path-rule automata at each node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from nas.genome import Genome, Node, ParamValue, Placement, Projections, Ref, Visibility
from nas.genome.types import infer
from nas.space.validation.automaton import Symbol
from nas.space.variation.grammar import NOT_REQUIRED, Goal, Grammar, OpSignature, State, satisfies


class Vertex(NamedTuple):
    """A node of the mutable graph ``Draft``.

    Attributes:
        operation: primitive with one of its signatures.
        inputs: operands; each is a stream or the index of an earlier node.
        params: parameters in the form of ``Node.params``.
        state: automaton states that paths to this node reach.
    """

    operation: OpSignature
    inputs: tuple[Ref, ...]
    params: tuple[tuple[str, ParamValue], ...]
    state: State


@dataclass
class Draft:
    """The graph of a genome while it is grown or mutated, or of a parent, which is only read.

    An edge is a pair (reader, slot). It stands for the operand with index ``slot`` of the node with
    index ``reader``. A ``Goal`` is a requirement on an operand or on the result of a node.

    Attributes:
        grammar: grammar that generates the graphs of the search space that obey its path rules.
        vertices: nodes in topological order; the last node is the output.
    """

    grammar: Grammar
    vertices: list[Vertex] = field(default_factory=list)
    _edge_goals: dict[tuple[int, int], Goal] = field(default_factory=dict)

    @classmethod
    def of(cls, genome: Genome, grammar: Grammar) -> Draft:
        """Return a mutable copy of the graph of a genome that type-checks."""
        draft, typing = cls(grammar), infer(genome)
        for node, signature in zip(genome.nodes, typing.signatures, strict=True):
            operation = OpSignature(node.op, signature, Symbol(node.op, signature.role.value))
            draft.add(operation, node.inputs, node.params)
        return draft

    def add(
        self,
        operation: OpSignature,
        inputs: Sequence[Ref],
        params: tuple[tuple[str, ParamValue], ...],
    ) -> int:
        """Append a node to the graph and return its index."""
        state = self.grammar.advance(operation.symbol, [self.state(ref) for ref in inputs])
        self.vertices.append(Vertex(operation, tuple(inputs), params, state))
        self.__dict__.pop("goals", None)
        self._edge_goals.clear()
        return len(self.vertices) - 1

    def state(self, ref: Ref) -> State:
        """Return the states of the path rules' automata that paths to a stream or node reach."""
        return self.grammar.streams[ref] if isinstance(ref, str) else self.vertices[ref].state

    def fits(self, ref: Ref, goal: Goal) -> bool:
        """Return whether a stream or node has the kind and automaton states of ``goal``."""
        if isinstance(ref, str):
            return ref in self.grammar.leaves(goal)
        vertex = self.vertices[ref]
        return vertex.operation.signature.output.kind is goal.kind and satisfies(vertex.state, goal)

    def edges(self) -> list[tuple[int, int]]:
        """Return all edges of the graph, as pairs of a node's index and an operand's index."""
        return [(i, s) for i, v in enumerate(self.vertices) for s in range(len(v.inputs))]

    def ancestors(self, ref: Ref) -> set[int]:
        """Return the node and all nodes on which its result depends."""
        ancestors: set[int] = set()
        stack = [ref]
        while stack:
            index = stack.pop()
            if isinstance(index, int) and index not in ancestors:
                ancestors.add(index)
                stack += self.vertices[index].inputs
        return ancestors

    @cached_property
    def goals(self) -> list[Goal]:
        """For each node, the requirement that the path rules put on its result, given its readers.

        Rules that require a path (``some``) are left out; ``full_goal`` adds them.
        """
        grammar = self.grammar
        allowed = [[r.automaton.all_states for r in grammar.path_rules] for _ in self.vertices]
        allowed[-1] = list(grammar.start.allowed)
        nothing = (NOT_REQUIRED,) * len(grammar.some_rules)
        goals: list[Goal] = [grammar.start] * len(self.vertices)
        for index in range(len(self.vertices) - 1, -1, -1):
            operation = self.vertices[index].operation
            goals[index] = Goal(operation.signature.output.kind, tuple(allowed[index]), nothing)
            for slot, ref in enumerate(self.vertices[index].inputs):
                if isinstance(ref, int):
                    goal = self._operand_goal(goals[index], operation, slot)
                    allowed[ref] = [a & b for a, b in zip(allowed[ref], goal.allowed, strict=True)]
        return goals

    def _operand_goal(self, goal: Goal, operation: OpSignature, slot: int) -> Goal:
        """Return the requirement on an operand of an operation whose result must meet ``goal``.

        Path rules that require a path (``some``) are left out.
        """
        nothing = (NOT_REQUIRED,) * len(goal.required)
        operands = self.grammar.operand_goals(goal._replace(required=nothing), operation)
        return next(operands)[slot]._replace(required=nothing)

    def edge_goal(self, reader: int, slot: int) -> Goal:
        """Return the requirement that the path rules put on operand ``slot`` of node ``reader``.

        A rule that requires a path (``some``) counts if it would be broken without this operand.
        """
        edge = reader, slot
        if edge not in self._edge_goals:
            goal = self._operand_goal(self.goals[reader], self.vertices[reader].operation, slot)
            rules = range(len(self.grammar.some_rules))
            required = tuple(self._required(i, edge) for i in rules)
            self._edge_goals[edge] = goal._replace(required=required)
        return self._edge_goals[edge]

    def full_goal(self, index: int) -> Goal:
        """Return the requirement that all path rules together put on the result of a node."""
        goal = self.goals[index]
        if index == len(self.vertices) - 1:
            return goal._replace(required=self.grammar.start.required)
        required = list(goal.required)
        for reader, slot in self.edges():
            if self.vertices[reader].inputs[slot] == index:
                for i, mask in enumerate(self.edge_goal(reader, slot).required):
                    required[i] = _combined(required[i], mask)
        return goal._replace(required=tuple(required))

    def _required(self, index: int, edge: tuple[int, int]) -> int:
        """Return the automaton states of which paths must reach one at an edge, for one path rule.

        Return ``NOT_REQUIRED`` if the rule holds without this edge.

        Args:
            index: index of the rule in ``grammar.some_rules``.
        """
        required = NOT_REQUIRED
        for place in self._places(index):
            arriving = self._arriving(index, place, without=edge)
            if not arriving & self.grammar.some_rules[index].automaton.accepting:
                required = _combined(required, self._leading(index, place, edge))
        return required

    def _places(self, index: int) -> Iterator[tuple[int, int]]:
        """Yield the edges at which the paths of a rule in ``grammar.some_rules`` end.

        If they end at the output, yield the pair of the last node's index and -1.
        """
        rule = self.grammar.some_rules[index]
        if rule.word is None:
            yield len(self.vertices) - 1, -1
        for reader, vertex in enumerate(self.vertices):
            slot = rule.slot(vertex.operation.symbol, vertex.operation.signature)
            if slot is not None:
                yield reader, slot

    def _arriving(self, index: int, place: tuple[int, int], without: tuple[int, int]) -> int:
        """Return the automaton states that paths reach at ``place`` if an edge is removed."""
        automaton = self.grammar.some_rules[index].automaton
        masks: list[int] = []
        for reader, vertex in enumerate(self.vertices):
            mask = 0
            for slot, ref in enumerate(vertex.inputs):
                arrives = masks[ref] if isinstance(ref, int) else self.state(ref).required[index]
                arrives = 0 if (reader, slot) == without else arrives
                if (reader, slot) == place:
                    return arrives
                mask |= arrives
            masks.append(automaton.advance(mask, vertex.operation.symbol) if mask else 0)
        return masks[-1]

    def _leading(self, index: int, place: tuple[int, int], edge: tuple[int, int]) -> int:
        """Return the automaton states at ``edge`` from which paths to ``place`` are accepted."""
        automaton = self.grammar.some_rules[index].automaton
        masks = [0] * len(self.vertices)
        if place[1] < 0:
            masks[place[0]] = automaton.accepting
        for reader in range(len(self.vertices) - 1, -1, -1):
            vertex = self.vertices[reader]
            back = automaton.retreat(masks[reader], vertex.operation.symbol) if masks[reader] else 0
            for slot, ref in enumerate(vertex.inputs):
                states = back | (automaton.accepting if (reader, slot) == place else 0)
                if (reader, slot) == edge:
                    return states
                if isinstance(ref, int):
                    masks[ref] |= states
        return 0

    def genome(
        self, projections: Projections, placement: Placement, visibility: Visibility
    ) -> Genome:
        """Return the genome of the graph, without nodes on which the output does not depend."""
        nodes = tuple(Node(v.operation.op, v.inputs, v.params) for v in self.vertices)
        return Genome(nodes, projections, placement, visibility).pruned()


def _combined(required: int, further: int) -> int:
    """Return the common states of two bit masks; ``NOT_REQUIRED`` stands for all states."""
    if NOT_REQUIRED in (required, further):
        return further if required == NOT_REQUIRED else required
    return required & further
