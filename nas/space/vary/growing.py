"""Random growth of subgraphs that meet a requirement of path rules, and random parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from nas.genome import ParamValue, Ref
from nas.genome.primitives import get
from nas.genome.primitives.base import STREAM_OF_PORT, Role
from nas.space import SearchSpace
from nas.space.vary.draft import Draft, Params
from nas.space.vary.grammar import Goal, Production

T = TypeVar("T")

# Relative probabilities of roles; primitives of one role are equally likely.
ROLE_WEIGHTS: Final = {
    Role.SCORE: 4.0,
    Role.NORMALIZE: 4.0,
    Role.AGGREGATE: 3.0,
    Role.TRANSFORM: 2.0,
    Role.ADJUST: 1.0,
    Role.GATE: 1.0,
    Role.POSITION: 1.0,
    Role.FORGET: 1.0,
}
# Weight of the stream with the name of an operand ("query": q); all other streams have weight 1.
PREFERENCE: Final = 3.0
STOP: Final = 0.65  # probability that a requirement on tokens is met by a stream
DRAWS: Final = 20  # random draws of parameters before all combinations are listed
REUSE: Final = 0.2  # probability that a requirement is met by an existing node
REUSE_GATES: Final = 0.8  # the delta rule and the scores of gated mechanisms share their gates


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
    operation, goals, size = pick_production(ways, rng)
    slack, inputs, ports = budget - size, list[Ref](), operation.signature.inputs
    for operand, operand_port in zip(goals, ports, strict=True):
        is_last = len(inputs) == len(ports) - 1
        extra = slack if is_last else int(rng.integers(slack + 1))
        before, least = len(draft.vertices), draft.grammar.size(operand)
        inputs.append(grow(draft, operand, least + extra, rng, operand_port.name))
        slack -= max(0, len(draft.vertices) - before - least)
    return draft.add(operation, inputs, draw_params(operation.op, draft.grammar.space, rng))


def pick_production(ways: list[Production], rng: np.random.Generator) -> Production:
    """Return a random production: first its role is drawn, then its primitive."""
    roles = sorted({p.operation.signature.role for p in ways})
    role = roles[choose([ROLE_WEIGHTS[r] for r in roles], rng)]
    ways = [p for p in ways if p.operation.signature.role is role]
    op = pick(sorted({p.operation.op for p in ways}), rng)
    return pick([p for p in ways if p.operation.op == op], rng)


def draw_params(op: str, space: SearchSpace, rng: np.random.Generator) -> Params:
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
