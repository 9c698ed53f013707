"""Random draws and changes of projections and masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from nas.genome import FLAGS, LABELS, Genome, Projections, Visibility
from nas.genome.types import infer
from nas.space import SearchSpace
from nas.space.vary.mutation import pick

FIELDS = (*FLAGS, *LABELS)


def draw(space: SearchSpace, rng: np.random.Generator) -> Projections:
    """Return random projections."""
    return Projections(**{name: pick(space.choices(name), rng) for name in FIELDS})


def draw_visibility(space: SearchSpace, rng: np.random.Generator) -> Visibility:
    """Return a random mask; without choices, no random number is drawn."""
    if not space.visibility:
        return Visibility()
    names = (f.name for f in fields(Visibility))
    return Visibility(**{name: pick(space.visibility_choices(name), rng) for name in names})


def change(projections: Projections, space: SearchSpace, rng: np.random.Generator) -> Projections:
    """Return the projections with another value of one random field, if the space has one."""
    open_fields = [n for n in FIELDS if set(space.choices(n)) - {getattr(projections, n)}]
    if not open_fields:
        return projections
    name = pick(open_fields, rng)
    others = [c for c in space.choices(name) if c != getattr(projections, name)]
    return replace(projections, **{name: pick(others, rng)})


def mix(a: Projections, b: Projections, rng: np.random.Generator) -> Projections:
    """Return projections of which each field comes from ``a`` or ``b`` at random."""
    return Projections(**{n: getattr(a if rng.random() < 0.5 else b, n) for n in FIELDS})


def fit(genome: Genome, space: SearchSpace, rng: np.random.Generator) -> Genome | None:
    """Return the genome with projections of the space with which it type-checks; None if none do.

    Fields with a value that the space does not have get its first choice. If the genome does not
    type-check then, one or two fields change.
    """
    for projections in _nearest(genome.projections, space, rng):
        fitted = replace(genome, projections=projections)
        if not infer(fitted).problems:
            return fitted
    return None


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
