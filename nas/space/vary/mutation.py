"""Random growth, mutation and crossover of graphs that obey the path rules of a policy.

A mutation returns a changed copy of the graph, or None if it does not apply. The caller changes the
projections so that the genome type-checks, and checks the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final, TypeVar

import numpy as np

from nas.genome import ParamValue, Ref
from nas.genome.primitives import get
from nas.genome.primitives.base import STREAM_OF_PORT, Role
from nas.space import SearchSpace
from nas.space.vary.draft import Draft, Edge, Params
from nas.space.vary.grammar import Goal, OpSignature, Production

T = TypeVar("T")

# Relative probabilities of roles, 1 for all others; primitives of one role are equally likely.
ROLE_WEIGHTS: Final = {
    Role.SCORE: 4.0,
    Role.NORMALIZE: 4.0,
    Role.AGGREGATE: 3.0,
    Role.TRANSFORM: 2.0,
}
# Weight of the stream with the name of an operand ("query": q); all other streams have weight 1.
PREFERENCE: Final = 3.0
STOP: Final = 0.65  # probability that a requirement on tokens is met by a stream
DRAWS: Final = 20  # random draws of parameters before all combinations are listed
REUSE: Final = 0.2  # probability that a requirement is met by an existing node
REUSE_GATES: Final = 0.8  # the delta rule and the scores of gated mechanisms share their gates
LOCAL_BUDGET: Final = 3  # nodes of a new subgraph beyond the fewest possible


def grow(draft: Draft, goal: Goal, budget: int, rng: np.random.Generator, port: str = "") -> Ref:
    """Return a stream or node that meets a requirement, after adding random nodes to the graph.

    At most ``budget`` nodes are added, which must be at least ``grammar.size(goal)``. ``port`` is
    the operand that the result becomes: for "query", the stream q is preferred.
    """
    existing = [i for i in range(len(draft.vertices)) if draft.fits(i, goal)]
    if existing and rng.random() < (REUSE_GATES if goal.kind.is_gates else REUSE):
        return int(rng.choice(existing))
    leaves = draft.grammar.leaves(goal)
    ways = [p for p in draft.grammar.productions(goal) if p.size <= budget]
    if leaves and (not ways or rng.random() < STOP):
        weights = [PREFERENCE if STREAM_OF_PORT.get(port) == s else 1.0 for s in leaves]
        return leaves[choose(weights, rng)]
    operation, goals, size = _pick_production(ways, rng)
    slack, inputs, ports = budget - size, list[Ref](), operation.signature.inputs
    for operand, operand_port in zip(goals, ports, strict=True):
        is_last = len(inputs) == len(ports) - 1
        extra = slack if is_last else int(rng.integers(slack + 1))
        before, least = len(draft.vertices), draft.grammar.size(operand)
        inputs.append(grow(draft, operand, least + extra, rng, operand_port.name))
        slack -= max(0, len(draft.vertices) - before - least)
    return draft.add(operation, inputs, _draw_params(operation.op, draft.grammar.space, rng))


def _pick_production(ways: list[Production], rng: np.random.Generator) -> Production:
    roles = sorted({p.operation.signature.role for p in ways})
    role = roles[choose([ROLE_WEIGHTS.get(r, 1.0) for r in roles], rng)]
    ways = [p for p in ways if p.operation.signature.role is role]
    op = pick(sorted({p.operation.op for p in ways}), rng)
    return pick([p for p in ways if p.operation.op == op], rng)


def _draw_params(op: str, space: SearchSpace, rng: np.random.Generator) -> Params:
    """Return random parameters that the space allows, as in ``Node.params``."""
    choices = {name: space.param_choices(op, name) for name in get(op).parameters}
    for _ in range(DRAWS):
        drawn = {name: pick(values, rng) for name, values in choices.items()}
        if space.allows(op, drawn):
            return changed(op, drawn)
    return changed(op, pick(list(space.combinations(op)), rng))


def changed(op: str, params: dict[str, ParamValue]) -> Params:
    """Return the parameters that differ from the primitive's defaults, as in ``Node.params``."""
    defaults = get(op).defaults()
    return tuple(sorted((k, v) for k, v in params.items() if v != defaults[k]))


def pick(items: Sequence[T], rng: np.random.Generator) -> T:
    """Return a random item."""
    return items[int(rng.integers(len(items)))]


def choose(weights: list[float], rng: np.random.Generator) -> int:
    """Return a random index, with probabilities proportional to the weights."""
    mark = rng.random() * sum(weights)
    for index, weight in enumerate(weights):
        mark -= weight
        if mark < 0:
            return index
    return len(weights) - 1


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
    operation, goals, _ = _pick_production(productions, rng)
    old_slot = pick([i for i, operand in enumerate(goals) if fresh.fits(old, operand)], rng)
    inputs = [
        old if i == old_slot else grow(fresh, g, fresh.grammar.size(g) + 1, rng, port.name)
        for i, (g, port) in enumerate(zip(goals, operation.signature.inputs, strict=True))
    ]
    ref = fresh.add(operation, inputs, _draw_params(operation.op, draft.grammar.space, rng))
    return fresh if is_output else draft.joined(fresh, reader, {slot: ref})


def insert_pair(draft: Draft, rng: np.random.Generator) -> Draft | None:
    """Insert the same unary operation, such as a rotation, at two operands of a random node."""
    pairs = [
        (reader, slots)
        for reader, vertex in enumerate(draft.vertices)
        for slots in combinations(range(len(vertex.inputs)), 2)
    ]
    for choice in rng.permutation(len(pairs)):
        reader, slots = pairs[choice]
        first, second = (_unary(draft, (reader, slot)) for slot in slots)
        if ways := [production for op, production in first.items() if op in second]:
            operation = _pick_production(ways, rng).operation
            params = _draw_params(operation.op, draft.grammar.space, rng)
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
    fresh.add(operation, vertex.inputs, _draw_params(operation.op, draft.grammar.space, rng))
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
    operator.__name__: operator
    for operator in (regrow, rewire, insert, insert_pair, remove, swap, retune)
}


def graft(receiver: Draft, donor: Draft, edge: Edge, root: int) -> Draft:
    """Replace an operand of ``receiver`` by the node ``root`` of ``donor`` and its ancestors."""
    fresh, new_index = receiver.before(edge[0]), dict[int, int]()
    for old in sorted(donor.ancestors(root)):
        vertex = donor.vertices[old]
        inputs = [new_index[r] if isinstance(r, int) else r for r in vertex.inputs]
        new_index[old] = fresh.add(vertex.operation, inputs, vertex.params)
    return receiver.joined(fresh, edge[0], {edge[1]: new_index[root]})
