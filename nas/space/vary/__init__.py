"""Random sampling, mutation and crossover of genomes. All results obey the path rules of a policy.

Graphs grow by a grammar that is derived from the path rules (module ``grammar``), so that no graph
has to be rejected. Projections are changed until the genome type-checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import lru_cache, partial
from typing import Final

import numpy as np

from nas.common.errors import SpaceError
from nas.genome import FLAGS, LABELS, Genome, Projections, Visibility
from nas.genome.types import infer, is_constant
from nas.space import SearchSpace
from nas.space.rules import Policy
from nas.space.vary.draft import Draft
from nas.space.vary.grammar import Grammar
from nas.space.vary.mutation import GRAPH_OPERATORS, graft, grow, pick

FIELDS: Final = (*FLAGS, *LABELS)
MOST_DRAFTS: Final = 1000  # cached graphs of parents
TRIES: Final = 50
PROJECT: Final = 0.3  # probability that a mutation changes projections or placement
PLACE: Final = 0.05  # probability that a mutation changes the placement
MASK: Final = 0.05  # probability that a mutation changes the mask, if the space has choices


class Variation:
    """Random genomes of a search space that obey the path rules of a policy.

    ``is_causal`` excludes genomes in which a token sees later tokens, like ``causal`` of the space.
    SpaceError is raised if no genome that is allowed in the space obeys the path rules.
    """

    def __init__(self, space: SearchSpace, policy: Policy, is_causal: bool = False) -> None:
        self.space = space.model_copy(update={"causal": True}) if is_causal else space
        self.grammar = Grammar(self.space, policy)
        self._draft = lru_cache(MOST_DRAFTS)(partial(Draft.of, grammar=self.grammar))

    def sample(self, rng: np.random.Generator) -> Genome:
        """Return a random genome; raise SpaceError if none of ``TRIES`` graphs type-checks."""
        least, most = self.grammar.size(self.grammar.start), self.space.nodes.max
        for _ in range(TRIES):
            draft, budget = Draft(self.grammar), int(rng.integers(least, most + 1))
            grow(draft, self.grammar.start, budget, rng)
            projections = Projections(**{n: pick(self.space.choices(n), rng) for n in FIELDS})
            placement = pick(self.space.placement, rng)
            around = Genome((), projections, placement, _draw_visibility(self.space, rng))
            if (genome := self._fitted(draft.genome(around), rng)) is not None:
                return genome
        raise SpaceError(
            f"space {self.space.name}: {TRIES} graphs were drawn and its projections fit none; "
            "expected choices with which some stream's heads and widths agree."
        )

    def mutate(
        self, genome: Genome, rng: np.random.Generator, strength: int = 1
    ) -> tuple[Genome, str]:
        """Return the genome after ``strength`` random changes, and their names joined by "+".

        If no change applies, the result is a new sample and the name "sample".
        """
        child, names = genome, []
        for _ in range(strength):
            changed = self._mutate_once(child, rng)
            if changed is None:
                return self.sample(rng), "sample"
            child, name = changed
            names.append(name)
        return child, "+".join(names)

    def crossover(self, a: Genome, b: Genome, rng: np.random.Generator) -> tuple[Genome, str]:
        """Return a mixture of two genomes, and the name of the change.

        The graph is that of ``a`` with one subgraph of ``b``, or without it if none fits. Other
        fields come from ``a`` or ``b`` at random. If no mixture is legal, the result is ``a``, or a
        new sample if the space is causal and ``a`` sees later tokens.
        """
        placement = a.placement if rng.random() < 0.5 else b.placement
        mixed = _mix(a.projections, b.projections, rng)
        grafted = self._graft(a, b, rng)
        mask = b.visibility if self.space.visibility and rng.random() < 0.5 else a.visibility
        for graph, name in ((grafted, "crossover"), (a, "crossover_projections")):
            if graph is not None:
                drawn = replace(graph, projections=mixed, placement=placement, visibility=mask)
                if (child := self._fitted(drawn, rng)) is not None:
                    return child, name
        if self._sees_ahead(a):
            return self.sample(rng), "sample"
        return a, "crossover_projections"

    def _mutate_once(self, genome: Genome, rng: np.random.Generator) -> tuple[Genome, str] | None:
        for kind in (self._kind(rng.random()), "graph"):
            for _ in range(TRIES):
                name, child = self._propose(kind, genome, rng)
                fitted = None if child is None else self._fitted(child, rng)
                if fitted is not None and fitted != genome:
                    return fitted, name
        return None

    def _kind(self, number: float) -> str:
        if number < PROJECT:
            return "mutate_placement" if number < PLACE else "project"
        return "mutate_mask" if self.space.visibility and number < PROJECT + MASK else "graph"

    def _propose(
        self, kind: str, genome: Genome, rng: np.random.Generator
    ) -> tuple[str, Genome | None]:
        if kind == "mutate_placement":
            return kind, replace(genome, placement=pick(self.space.placement, rng))
        if kind == "mutate_mask":
            return kind, replace(genome, visibility=_draw_visibility(self.space, rng))
        if kind == "project":
            changed = _change(genome.projections, self.space, rng)
            child = replace(genome, projections=changed)
            return kind, None if infer(child).problems else child
        name = pick(list(GRAPH_OPERATORS), rng)
        draft = GRAPH_OPERATORS[name](self._draft(genome), rng)
        return name, None if draft is None else draft.genome(genome)

    def _graft(self, a: Genome, b: Genome, rng: np.random.Generator) -> Genome | None:
        receiver, donor = self._draft(a), self._draft(b)
        edges = receiver.edges()
        for choice in rng.permutation(len(edges)):
            goal = receiver.edge_goal(*edges[choice])
            if fitting := [i for i in range(len(donor.vertices)) if donor.fits(i, goal)]:
                return graft(receiver, donor, edges[choice], pick(fitting, rng)).genome(a)
        return None

    def _fitted(self, genome: Genome, rng: np.random.Generator) -> Genome | None:
        """Return the genome with the nearest projections that fit; None if it is not allowed."""
        is_large = len(genome.nodes) > self.space.nodes.max
        if is_large or self._sees_ahead(genome) or is_constant(genome):
            return None
        nearest = _nearest(genome.projections, self.space, rng)
        candidates = (replace(genome, projections=projections) for projections in nearest)
        return next((child for child in candidates if not infer(child).problems), None)

    def _sees_ahead(self, genome: Genome) -> bool:
        if not self.space.causal:
            return False
        return not all(self.space.allows(node.op, dict(node.params)) for node in genome.nodes)


def _draw_visibility(space: SearchSpace, rng: np.random.Generator) -> Visibility:
    if not space.visibility:  # without choices, no random number is drawn
        return Visibility()
    names = (f.name for f in fields(Visibility))
    return Visibility(**{name: pick(space.choices(name), rng) for name in names})


def _change(projections: Projections, space: SearchSpace, rng: np.random.Generator) -> Projections:
    open_fields = [n for n in FIELDS if set(space.choices(n)) - {getattr(projections, n)}]
    if not open_fields:
        return projections
    name = pick(open_fields, rng)
    others = [c for c in space.choices(name) if c != getattr(projections, name)]
    return replace(projections, **{name: pick(others, rng)})


def _mix(a: Projections, b: Projections, rng: np.random.Generator) -> Projections:
    return Projections(**{n: getattr(a if rng.random() < 0.5 else b, n) for n in FIELDS})


def _nearest(
    projections: Projections, space: SearchSpace, rng: np.random.Generator
) -> Iterator[Projections]:
    # A normal form has no projection of an unread stream, which a mutation may connect.
    outside = [n for n in FIELDS if getattr(projections, n) not in space.choices(n)]
    first = replace(projections, **{name: space.choices(name)[0] for name in outside})
    yield first
    singles = _changes(first, space, rng)
    yield from singles
    for once in singles:
        yield from _changes(once, space, rng)


def _changes(
    projections: Projections, space: SearchSpace, rng: np.random.Generator
) -> list[Projections]:
    changes = [
        replace(projections, **{name: choice})
        for name in FIELDS
        for choice in space.choices(name)
        if choice != getattr(projections, name)
    ]
    return [changes[i] for i in rng.permutation(len(changes))]
