"""Enumerate all mechanisms of a small space, each once, for a table of trainings.

Graphs grow from the same goals as samples (``growing``), over all choices. A goal is met by a
stream, an existing node or a new node. So each graph within the space's limit of nodes is generated
at least once; the resolved digest removes duplicates.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import product
from typing import TYPE_CHECKING

from nas.genome import Genome, Projections, Visibility
from nas.genome.algebra import is_constant
from nas.genome.canonical import canonicalise, resolved_digest
from nas.genome.types import infer
from nas.space.validation import validate
from nas.space.variation.draft import Draft
from nas.space.variation.grammar import Grammar
from nas.space.variation.growing import changed
from nas.space.variation.projecting import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.genome import ModelSizes, Ref
    from nas.space import SearchSpace
    from nas.space.validation import Policy
    from nas.space.variation.draft import Vertex
    from nas.space.variation.grammar import Goal, Production

    Partial = tuple[tuple[Vertex, ...], Ref]


def enumerate_space(
    space: SearchSpace, policy: Policy, sizes: ModelSizes, *, is_causal: bool = False
) -> Iterator[tuple[str, Genome]]:
    """Yield (resolved digest, normal form) of each mechanism of the space at these sizes.

    Raises:
        SpaceError: no genome of the space obeys the policy.
    """
    grammar = Grammar(space, policy)
    surroundings = list(_surroundings(space))
    keys = set()
    for vertices, _ in _grown(Draft(grammar), grammar.start, space.nodes.max, space):
        draft = Draft(grammar, list(vertices))
        for projections, placement, visibility in surroundings:
            genome = draft.genome(projections, placement, visibility)
            if infer(genome).problems or is_constant(genome):
                continue
            genome = canonicalise(genome, sizes, is_causal=is_causal)
            key = resolved_digest(genome, sizes)
            if key not in keys and not validate(genome, policy) and space.excludes(genome) is None:
                keys.add(key)
                yield key, genome


def _surroundings(space: SearchSpace) -> Iterator[tuple[Projections, str, Visibility]]:
    names = [f.name for f in fields(Visibility)]
    masks = product(*(space.visibility_choices(name) for name in names))
    flags = product(*(space.choices(name) for name in FIELDS))
    for projection_values, placement, mask in product(flags, space.placement, masks):
        projections = Projections(**dict(zip(FIELDS, projection_values, strict=True)))
        yield projections, placement, Visibility(**dict(zip(names, mask, strict=True)))


def _grown(draft: Draft, goal: Goal, budget: int, space: SearchSpace) -> Iterator[Partial]:
    """All ways to meet a goal with at most ``budget`` new nodes: all nodes, and the reference."""
    before = tuple(draft.vertices)
    for stream in draft.grammar.leaves(goal):
        yield before, stream
    for index in range(len(before)):
        if draft.fits(index, goal):
            yield before, index
    if budget > 0:  # the size of a production would count a node that is read twice as two
        for production in draft.grammar.productions(goal):
            yield from _with_node(draft, production, budget, space)


def _with_node(
    draft: Draft, production: Production, budget: int, space: SearchSpace
) -> Iterator[Partial]:
    before = len(draft.vertices)
    op = production.operation.op
    partials: list[tuple[tuple[Vertex, ...], tuple[Ref, ...]]] = [(tuple(draft.vertices), ())]
    for goal in production.goals:
        partials = [
            (vertices, (*inputs, ref))
            for before_goal, inputs in partials
            for vertices, ref in _grown(
                Draft(draft.grammar, list(before_goal)),
                goal,
                budget - 1 - (len(before_goal) - before),
                space,
            )
        ]
    for vertices, inputs in partials:
        for params in space.combinations(op):
            grown = Draft(draft.grammar, list(vertices))
            ref = grown.add(production.operation, inputs, changed(op, params))
            yield tuple(grown.vertices), ref
