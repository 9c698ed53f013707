"""Mutations: small changes that keep a genome legal.

An operator returns the changed draft, or None if it does not apply. New subgraphs are derived from
the grammar's symbol for their edge (``nas.space.variation.grammar``), so results obey the policy.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nas.genome import Ref
from nas.genome.primitives import get
from nas.space import SearchSpace
from nas.space.variation.draft import Draft
from nas.space.variation.grammar import Goal
from nas.space.variation.growing import changed, draw_params, grow, pick, pick_production

LOCAL_BUDGET: Final = 3  # nodes of a regrown subgraph beyond the fewest possible


def regrow(draft: Draft, space: SearchSpace, rng: np.random.Generator) -> Draft | None:
    """Replace the operand at an edge by a new subgraph."""
    reader, slot = pick(draft.edges(), rng)
    goal = draft.edge_goal(reader, slot, draft.goals())
    fresh = _before(draft, reader)
    budget = draft.grammar.size(goal) + int(rng.integers(LOCAL_BUDGET + 1))
    port = draft.vertices[reader].operation.signature.inputs[slot]
    ref = grow(fresh, goal, budget, space, rng, port.name)
    return _with_edge(draft, fresh, reader, slot, ref)


def rewire(draft: Draft, space: SearchSpace, rng: np.random.Generator) -> Draft | None:
    """Connect an edge to another stream or earlier node."""
    reader, slot = pick(draft.edges(), rng)
    goal = draft.edge_goal(reader, slot, draft.goals())
    old = draft.vertices[reader].inputs[slot]
    refs: list[Ref] = [*draft.grammar.streams, *range(reader)]
    others = [ref for ref in refs if ref != old and draft.fits(ref, goal)]
    if not others:
        return None
    ref = pick(others, rng)
    return _with_edge(draft, _before(draft, reader), reader, slot, ref)


def insert(draft: Draft, space: SearchSpace, rng: np.random.Generator) -> Draft | None:
    """Insert a new node into an edge, or after the output."""
    goals = draft.goals()
    edges = [*draft.edges(), (len(draft.vertices), 0)]
    reader, slot = pick(edges, rng)
    is_output = reader == len(draft.vertices)
    goal = draft.grammar.start if is_output else draft.edge_goal(reader, slot, goals)
    old: Ref = reader - 1 if is_output else draft.vertices[reader].inputs[slot]
    fresh = _before(draft, reader)
    ways = [
        production
        for production in draft.grammar.productions(goal)
        if any(fresh.fits(old, operand) for operand in production.goals)
    ]
    if not ways:
        return None
    production = pick_production(ways, rng)
    carriers = [i for i, operand in enumerate(production.goals) if fresh.fits(old, operand)]
    carrier = pick(carriers, rng)
    ports = production.operation.signature.inputs
    inputs = [
        old if i == carrier else grow(fresh, g, fresh.grammar.size(g) + 1, space, rng, p.name)
        for i, (g, p) in enumerate(zip(production.goals, ports, strict=True))
    ]
    params = draw_params(production.operation.op, space, rng)
    ref = fresh.add(production.operation, inputs, params)
    return fresh if is_output else _with_edge(draft, fresh, reader, slot, ref)


def remove(draft: Draft, space: SearchSpace, rng: np.random.Generator) -> Draft | None:
    """Replace a node by one of its operands in one reader."""
    goals = draft.goals()
    ways: list[tuple[int, int, Ref]] = []
    for reader, slot in draft.edges():
        old = draft.vertices[reader].inputs[slot]
        if isinstance(old, int):
            goal = draft.edge_goal(reader, slot, goals)
            ways += [(reader, slot, r) for r in draft.vertices[old].inputs if draft.fits(r, goal)]
    last = len(draft.vertices) - 1
    ways += [
        (last + 1, 0, ref)
        for ref in draft.vertices[last].inputs
        if isinstance(ref, int) and draft.fits(ref, draft.grammar.start)
    ]
    if not ways:
        return None
    reader, slot, ref = pick(ways, rng)
    if reader == last + 1 and isinstance(ref, int):
        return _before(draft, ref + 1)
    return _with_edge(draft, _before(draft, reader), reader, slot, ref)


def swap(draft: Draft, space: SearchSpace, rng: np.random.Generator) -> Draft | None:
    """Exchange a node's primitive for another that takes the same operands."""
    at = int(rng.integers(len(draft.vertices)))
    vertex, goal = draft.vertices[at], _full_goal(draft, at)
    ways = []
    for operation in draft.grammar.op_signatures:
        signature = operation.signature
        fits = signature.output.kind is goal.kind
        if (
            fits
            and operation.op != vertex.operation.op
            and len(signature.inputs) == len(vertex.inputs)
        ):
            choices = draft.grammar.operand_goals(goal, operation)
            if any(all(map(draft.fits, vertex.inputs, operands)) for operands in choices):
                ways.append(operation)
    if not ways:
        return None
    operation = pick(ways, rng)
    fresh = _before(draft, at)
    fresh.add(operation, vertex.inputs, draw_params(operation.op, space, rng))
    return _rest(draft, fresh, at + 1)


def retune(draft: Draft, space: SearchSpace, rng: np.random.Generator) -> Draft | None:
    """Change one parameter of one node."""
    ways = []
    for at, vertex in enumerate(draft.vertices):
        op, full = vertex.operation.op, get(vertex.operation.op).full(dict(vertex.params))
        if op in space.primitives:
            ways += [
                (at, full | {name: value})
                for name in full
                for value in space.param_choices(op, name)
                if value != full[name] and space.allows(op, full | {name: value})
            ]
    if not ways:
        return None
    at, params = pick(ways, rng)
    fresh = _before(draft, len(draft.vertices))
    vertex = fresh.vertices[at]
    fresh.vertices[at] = vertex._replace(params=changed(vertex.operation.op, params))
    return fresh


GRAPH_OPERATORS: Final = {
    "regrow": regrow,
    "rewire": rewire,
    "insert": insert,
    "remove": remove,
    "swap": swap,
    "retune": retune,
}


def graft(host: Draft, donor: Draft, edge: tuple[int, int], at: int) -> Draft:
    """Replace the operand of an edge by a copy of a donor's node and its ancestors."""
    fresh, place = _before(host, edge[0]), dict[int, int]()
    for old in sorted(donor.ancestors(at)):
        vertex = donor.vertices[old]
        inputs = [place[r] if isinstance(r, int) else r for r in vertex.inputs]
        place[old] = fresh.add(vertex.operation, inputs, vertex.params)
    return _with_edge(host, fresh, *edge, place[at])


def _full_goal(draft: Draft, at: int) -> Goal:
    """The goal at a node's result, with the required states of all its readers."""
    goals = draft.goals()
    goal = goals[at]
    required = list(goal.required)
    for reader, slot in draft.edges():
        if draft.vertices[reader].inputs[slot] == at:
            for i, mask in enumerate(draft.edge_goal(reader, slot, goals).required):
                required[i] = (
                    mask if required[i] < 0 else (required[i] if mask < 0 else required[i] & mask)
                )
    if at == len(draft.vertices) - 1:
        required = list(draft.grammar.start.required)
    return goal._replace(required=tuple(required))


def _before(draft: Draft, reader: int) -> Draft:
    """A copy of the vertices before a node."""
    return Draft(draft.grammar, draft.vertices[:reader])


def _with_edge(draft: Draft, fresh: Draft, reader: int, slot: int, ref: Ref) -> Draft:
    """Append ``reader``, with ``ref`` at ``slot``, and the rest of ``draft`` to ``fresh``."""
    shift = len(fresh.vertices) - reader
    vertex = draft.vertices[reader]
    inputs = (*vertex.inputs[:slot], ref, *vertex.inputs[slot + 1 :])
    fresh.add(vertex.operation, inputs, vertex.params)
    return _rest(draft, fresh, reader + 1, shift)


def _rest(draft: Draft, fresh: Draft, start: int, shift: int = 0) -> Draft:
    """Append the vertices of ``draft`` from ``start`` on, with indices moved by ``shift``."""
    first = start - 1
    for vertex in draft.vertices[start:]:
        inputs = [r + shift if isinstance(r, int) and r >= first else r for r in vertex.inputs]
        fresh.add(vertex.operation, inputs, vertex.params)
    return fresh
