"""Enumerate all mechanisms of a small search space, each once, for a table of trainings.

Graphs grow as those of random samples do (``nas.space.vary.growing``), but over all choices.
Each input of an operation is a grammar goal, that is, a type of value that the operation needs. A
stream (q, k or v), an existing node or a new node meets the goal. So each graph within the space's
limit of nodes is generated at least once; the digest removes duplicates. Graphs are generated one
at a time; only the digests of earlier mechanisms stay in memory.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import TYPE_CHECKING

from nas.genome import Genome, Projections, Visibility
from nas.genome.canonical import canonicalise, resolved_digest
from nas.genome.signs import is_constant
from nas.genome.types import infer
from nas.space.rules import validate
from nas.space.vary.draft import Draft
from nas.space.vary.grammar import Grammar
from nas.space.vary.growing import changed
from nas.space.vary.projecting import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nas.genome import ModelSizes, Ref
    from nas.space import SearchSpace
    from nas.space.rules import Policy
    from nas.space.vary.draft import Vertex
    from nas.space.vary.grammar import Goal

    Vertices = tuple[Vertex, ...]


def enumerate_space(
    space: SearchSpace, policy: Policy, sizes: ModelSizes, *, is_causal: bool = False
) -> Iterator[tuple[str, Genome]]:
    """Yield digest and genome in normal form of each mechanism of the space at a task's sizes.

    Raises:
        SpaceError: no genome of the space obeys the policy.
    """
    grammar = Grammar(space, policy)
    surroundings = list(_surroundings(space, sizes.depth))
    keys = set()
    for vertices, _ in _grown(space, grammar, (), grammar.start, space.nodes.max):
        draft = Draft(grammar, list(vertices))
        for around in surroundings:
            genome = draft.genome(around)
            if infer(genome).problems or is_constant(genome):
                continue
            genome = canonicalise(genome, sizes, is_causal=is_causal)
            key = resolved_digest(genome, sizes)
            if (
                key not in keys
                and not validate(genome, policy)
                and not space.excludes(genome, sizes.depth)
            ):
                keys.add(key)
                yield key, genome


def _surroundings(space: SearchSpace, depth: int) -> Iterator[Genome]:
    names = [f.name for f in fields(Visibility)]
    masks = product(*(space.visibility_choices(name) for name in names))
    placements = list(dict.fromkeys(space.placements(depth)))
    flags = product(*(space.choices(name) for name in FIELDS))
    for projection_values, placement, mask in product(flags, placements, masks):
        projections = Projections(**dict(zip(FIELDS, projection_values, strict=True)))
        visibility = Visibility(**dict(zip(names, mask, strict=True)))
        yield Genome((), projections, placement, visibility)


def _grown(
    space: SearchSpace, grammar: Grammar, vertices: Vertices, goal: Goal, budget: int
) -> Iterator[tuple[Vertices, Ref]]:
    """Yield all ways to meet a goal with at most ``budget`` new nodes: nodes and result."""
    draft = Draft(grammar, list(vertices))
    for stream in grammar.leaves(goal):
        yield vertices, stream
    for index in range(len(vertices)):
        if draft.fits(index, goal):
            yield vertices, index
    if budget < 1:
        return
    # The size of a production cannot be used: it counts a node that is read twice as two nodes.
    for production in grammar.productions(goal):
        op = production.operation.op
        for before, inputs in _inputs(space, grammar, vertices, production.goals, budget - 1):
            for params in space.combinations(op):
                grown = Draft(grammar, list(before))
                ref = grown.add(production.operation, inputs, changed(op, params))
                yield tuple(grown.vertices), ref


def _inputs(
    space: SearchSpace,
    grammar: Grammar,
    vertices: Vertices,
    goals: Sequence[Goal],
    budget: int,
) -> Iterator[tuple[Vertices, tuple[Ref, ...]]]:
    """Yield all ways to meet several goals: nodes, and the result for each goal."""
    if not goals:
        yield vertices, ()
        return
    for grown, ref in _grown(space, grammar, vertices, goals[0], budget):
        left = budget - (len(grown) - len(vertices))
        for last, refs in _inputs(space, grammar, grown, goals[1:], left):
            yield last, (ref, *refs)
