"""The mutable graph that variation changes, with the states of path-rule automata at each node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import and_
from typing import NamedTuple

from nas.genome import Genome, Node, ParamValue, Ref
from nas.genome.types import infer
from nas.space.rules import Rule
from nas.space.rules.automaton import Symbol
from nas.space.vary.grammar import ANY, Goal, Grammar, Masks, OpSignature

Params = tuple[tuple[str, ParamValue], ...]
Edge = tuple[int, int]


class Vertex(NamedTuple):
    """A node of a ``Draft``. ``masks`` are the automaton states that paths to the node reach."""

    operation: OpSignature
    inputs: tuple[Ref, ...]
    params: Params
    masks: Masks


@dataclass
class Draft:
    """The graph of a genome while it is grown or mutated, or of a parent, which is only read.

    An edge (reader, slot) is the operand ``slot`` of the node ``reader``. The nodes are in
    topological order; the last one is the output.
    """

    grammar: Grammar
    vertices: list[Vertex] = field(default_factory=list)
    _edge_goals: dict[Edge, Goal] = field(default_factory=dict)

    @classmethod
    def of(cls, genome: Genome, grammar: Grammar) -> Draft:
        """Return the graph of a genome that type-checks."""
        draft, typing = cls(grammar), infer(genome)
        for node, signature in zip(genome.nodes, typing.signatures, strict=True):
            operation = OpSignature(node.op, signature, Symbol(node.op, signature.role.value))
            draft.add(operation, node.inputs, node.params)
        return draft

    def add(self, operation: OpSignature, inputs: Sequence[Ref], params: Params) -> int:
        """Append a node to the graph and return its index."""
        masks = self.grammar.advance(operation.symbol, [self.masks(ref) for ref in inputs])
        self.vertices.append(Vertex(operation, tuple(inputs), params, masks))
        self.__dict__.pop("goals", None)
        self._edge_goals.clear()
        return len(self.vertices) - 1

    def before(self, reader: int) -> Draft:
        """Return a copy of the nodes before a node."""
        return Draft(self.grammar, self.vertices[:reader])

    def joined(self, head: Draft, reader: int, refs: Mapping[int, Ref]) -> Draft:
        """Append the nodes from ``reader`` on, which has new operands ``refs``, to ``head``."""
        shift = len(head.vertices) - reader
        for index, vertex in enumerate(self.vertices[reader:], reader):
            inputs = [r + shift if isinstance(r, int) and r >= reader else r for r in vertex.inputs]
            if index == reader:
                inputs = [refs.get(slot, old) for slot, old in enumerate(inputs)]
            head.add(vertex.operation, inputs, vertex.params)
        return head

    def masks(self, ref: Ref) -> Masks:
        """Return the automaton states that paths to a stream or node reach."""
        return self.grammar.streams[ref] if isinstance(ref, str) else self.vertices[ref].masks

    def fits(self, ref: Ref, goal: Goal) -> bool:
        """Return whether a stream or node meets ``goal``."""
        if isinstance(ref, str):
            return ref in self.grammar.leaves(goal)
        kind = self.vertices[ref].operation.signature.output.kind
        return kind is goal.kind and self.grammar.satisfies(self.vertices[ref].masks, goal)

    def edges(self) -> list[Edge]:
        """Return all edges."""
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
        """The requirements of the rules about all paths on each node."""
        rules, last = self.grammar.rules, len(self.vertices) - 1
        masks: list[Masks] = [(ANY,) * len(rules)] * last + [self.grammar.start.masks]
        goals = [self.grammar.start] * len(self.vertices)
        for index in range(last, -1, -1):
            operation, inputs = self.vertices[index].operation, self.vertices[index].inputs
            own = (ANY if r.is_some else m for r, m in zip(rules, masks[index], strict=True))
            goals[index] = Goal(operation.signature.output.kind, tuple(own))
            operands = next(self.grammar.operand_goals(goals[index], operation))
            for ref, operand in zip(inputs, operands, strict=True):
                if isinstance(ref, int):
                    masks[ref] = tuple(map(and_, masks[ref], operand.masks))
        return goals

    def edge_goal(self, reader: int, slot: int) -> Goal:
        """Return the requirement of the rules on operand ``slot`` of node ``reader``.

        A rule that requires a path (``some``) counts if it would be broken without this operand.
        """
        edge = reader, slot
        if edge not in self._edge_goals:
            operation = self.vertices[reader].operation
            goal = next(self.grammar.operand_goals(self.goals[reader], operation))[slot]
            masks = list(goal.masks)
            for index, rule in enumerate(self.grammar.rules):
                if rule.is_some:
                    masks[index] = self._required(index, rule, edge)
            self._edge_goals[edge] = goal._replace(masks=tuple(masks))
        return self._edge_goals[edge]

    def full_goal(self, index: int) -> Goal:
        """Return the requirement of all rules on a node."""
        if index == len(self.vertices) - 1:
            return self.grammar.start
        goals = (self.edge_goal(*edge) for edge in self.edges() if self.ref(edge) == index)
        masks = reduce(lambda a, b: tuple(map(and_, a, b)), (goal.masks for goal in goals))
        return self.goals[index]._replace(masks=masks)

    def ref(self, edge: Edge) -> Ref:
        """Return the operand at an edge."""
        return self.vertices[edge[0]].inputs[edge[1]]

    def _required(self, index: int, rule: Rule, edge: Edge) -> int:
        required = ANY
        for place in self._places(rule):
            arriving = self._arriving(index, rule, place, without=edge)
            if not arriving & rule.automaton.accepting:
                required &= self._leading(rule, place, edge)
        return required

    def _places(self, rule: Rule) -> Iterator[Edge]:
        """Yield the edges at which a rule's paths end; (last node, -1) if it is the output."""
        if rule.word is None:
            yield len(self.vertices) - 1, -1
        for reader, vertex in enumerate(self.vertices):
            slot = rule.slot(vertex.operation.symbol, vertex.operation.signature)
            if slot is not None:
                yield reader, slot

    def _arriving(self, index: int, rule: Rule, place: Edge, without: Edge) -> int:
        """Return the automaton states that paths reach at ``place`` if an edge is removed."""
        masks: list[int] = []
        for reader, vertex in enumerate(self.vertices):
            mask = 0
            for slot, ref in enumerate(vertex.inputs):
                arrives = masks[ref] if isinstance(ref, int) else self.masks(ref)[index]
                arrives = 0 if (reader, slot) == without else arrives
                if (reader, slot) == place:
                    return arrives
                mask |= arrives
            masks.append(rule.automaton.advance(mask, vertex.operation.symbol) if mask else 0)
        return masks[-1]

    def _leading(self, rule: Rule, place: Edge, edge: Edge) -> int:
        """Return the automaton states at ``edge`` from which paths to ``place`` are accepted."""
        accepting, masks = rule.automaton.accepting, [0] * len(self.vertices)
        if place[1] < 0:
            masks[place[0]] = accepting
        for reader in range(len(self.vertices) - 1, -1, -1):
            vertex = self.vertices[reader]
            back = rule.automaton.retreat(masks[reader], vertex.operation.symbol)
            for slot, ref in enumerate(vertex.inputs):
                states = back | (accepting if (reader, slot) == place else 0)
                if (reader, slot) == edge:
                    return states
                if isinstance(ref, int):
                    masks[ref] |= states
        return 0

    def genome(self, around: Genome) -> Genome:
        """Return ``around`` with this graph, without nodes on which the output does not depend."""
        nodes = tuple(Node(v.operation.op, v.inputs, v.params) for v in self.vertices)
        return replace(around, nodes=nodes).pruned()
