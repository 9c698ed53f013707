"""Mutations and crossover of graphs, after which a genome still obeys the path rules of a policy.

A mutation returns a changed copy of the graph, or None if it does not apply. The caller changes the
projections so that the genome type-checks, and checks the number of nodes.
"""

from __future__ import annotations

from itertools import combinations
from typing import Final

import numpy as np

from nas.genome import Ref
from nas.genome.primitives import get
from nas.space.vary.draft import Draft, Edge
from nas.space.vary.grammar import OpSignature, Production
from nas.space.vary.growing import changed, draw_params, grow, pick, pick_production

LOCAL_BUDGET: Final = 3  # nodes of a new subgraph beyond the fewest possible


def regrow(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Replace a random operand by a new random subgraph."""
    reader, slot = pick(draft.edges(), rng)
    goal, fresh = draft.edge_goal(reader, slot), draft.before(reader)
    budget = draft.grammar.size(goal) + int(rng.integers(LOCAL_BUDGET + 1))
    port = draft.vertices[reader].operation.signature.inputs[slot]
    return draft.joined(fresh, reader, {slot: grow(fresh, goal, budget, rng, port.name)})


def rewire(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Replace a random operand by another stream or node."""
    reader, slot = edge = pick(draft.edges(), rng)
    refs: list[Ref] = [*draft.grammar.streams, *range(reader)]
    goal = draft.edge_goal(*edge)
    others = [ref for ref in refs if ref != draft.ref(edge) and draft.fits(ref, goal)]
    if not others:
        return None
    return draft.joined(draft.before(reader), reader, {slot: pick(others, rng)})


def insert(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Insert a new random node between a random operand and its reader, or after the output."""
    last = len(draft.vertices)
    reader, slot = pick([*draft.edges(), (last, 0)], rng)
    is_output = reader == last
    goal = draft.grammar.start if is_output else draft.edge_goal(reader, slot)
    old: Ref = reader - 1 if is_output else draft.vertices[reader].inputs[slot]
    fresh = draft.before(reader)
    productions = [
        production
        for production in draft.grammar.productions(goal)
        if any(fresh.fits(old, operand) for operand in production.goals)
    ]
    if not productions:
        return None
    operation, goals, _ = pick_production(productions, rng)
    old_slot = pick([i for i, operand in enumerate(goals) if fresh.fits(old, operand)], rng)
    inputs = [
        old if i == old_slot else grow(fresh, g, fresh.grammar.size(g) + 1, rng, port.name)
        for i, (g, port) in enumerate(zip(goals, operation.signature.inputs, strict=True))
    ]
    ref = fresh.add(operation, inputs, draw_params(operation.op, draft.grammar.space, rng))
    return fresh if is_output else draft.joined(fresh, reader, {slot: ref})


def insert_pair(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Insert the same unary operation at two operands of a random node.

    A rotation, for example, helps only on both queries and keys.
    """
    pairs = [
        (reader, slots)
        for reader, vertex in enumerate(draft.vertices)
        for slots in combinations(range(len(vertex.inputs)), 2)
    ]
    for choice in rng.permutation(len(pairs)):
        reader, slots = pairs[choice]
        first, second = (_unary(draft, (reader, slot)) for slot in slots)
        if ways := [production for op, production in first.items() if op in second]:
            operation = pick_production(ways, rng).operation
            params = draw_params(operation.op, draft.grammar.space, rng)
            fresh, inputs = draft.before(reader), draft.vertices[reader].inputs
            new = {inputs[s]: fresh.add(operation, [inputs[s]], params) for s in slots}
            return draft.joined(fresh, reader, {s: new[inputs[s]] for s in slots})
    return None


def _unary(draft: Draft, edge: Edge) -> dict[OpSignature, Production]:
    return {
        production.operation: production
        for production in draft.grammar.productions(draft.edge_goal(*edge))
        if len(production.goals) == 1 and draft.fits(draft.ref(edge), production.goals[0])
    }


def remove(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Replace a random operand, or the output, by one of its own operands."""
    ways: list[tuple[int, int, Ref]] = []
    for edge in draft.edges():
        if isinstance(old := draft.ref(edge), int):
            goal = draft.edge_goal(*edge)
            ways += [(*edge, r) for r in draft.vertices[old].inputs if draft.fits(r, goal)]
    end = len(draft.vertices)
    ways += [
        (end, 0, ref)
        for ref in draft.vertices[-1].inputs
        if isinstance(ref, int) and draft.fits(ref, draft.grammar.start)
    ]
    if not ways:
        return None
    reader, slot, ref = pick(ways, rng)
    if reader == end and isinstance(ref, int):
        return draft.before(ref + 1)
    return draft.joined(draft.before(reader), reader, {slot: ref})


def swap(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Change the primitive of a random node."""
    index = int(rng.integers(len(draft.vertices)))
    vertex, goal = draft.vertices[index], draft.full_goal(index)
    ways = [
        operation
        for operation in draft.grammar.op_signatures
        if operation.signature.output.kind is goal.kind
        and operation.op != vertex.operation.op
        and len(operation.signature.inputs) == len(vertex.inputs)
        and any(
            all(map(draft.fits, vertex.inputs, operands))
            for operands in draft.grammar.operand_goals(goal, operation)
        )
    ]
    if not ways:
        return None
    operation = pick(ways, rng)
    fresh = draft.before(index)
    fresh.add(operation, vertex.inputs, draw_params(operation.op, draft.grammar.space, rng))
    return draft.joined(fresh, index + 1, {})


def retune(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Change the value of a random parameter."""
    space, ways = draft.grammar.space, []
    for index, vertex in enumerate(draft.vertices):
        op, full = vertex.operation.op, get(vertex.operation.op).full(dict(vertex.params))
        if op in space.primitives:
            ways += [
                (index, full | {name: value})
                for name in full
                for value in space.param_choices(op, name)
                if value != full[name] and space.allows(op, full | {name: value})
            ]
    if not ways:
        return None
    index, params = pick(ways, rng)
    fresh = draft.before(len(draft.vertices))
    vertex = fresh.vertices[index]
    fresh.vertices[index] = vertex._replace(params=changed(vertex.operation.op, params))
    return fresh


GRAPH_OPERATORS: Final = {
    "regrow": regrow,
    "rewire": rewire,
    "insert": insert,
    "insert_pair": insert_pair,
    "remove": remove,
    "swap": swap,
    "retune": retune,
}


def graft(receiver: Draft, donor: Draft, edge: Edge, root: int) -> Draft:
    """Replace an operand of ``receiver`` by the node ``root`` of ``donor`` and its ancestors."""
    fresh, new_index = receiver.before(edge[0]), dict[int, int]()
    for old in sorted(donor.ancestors(root)):
        vertex = donor.vertices[old]
        inputs = [new_index[r] if isinstance(r, int) else r for r in vertex.inputs]
        new_index[old] = fresh.add(vertex.operation, inputs, vertex.params)
    return receiver.joined(fresh, edge[0], {edge[1]: new_index[root]})
