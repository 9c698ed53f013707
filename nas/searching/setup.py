"""What a run is begun with, and how the frozen copies in its folder become objects again.

A new run works from its frozen copies too, so that one that is resumed cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nas.canonical import resolved_digest
from nas.config import M, dump_yaml, near, parse_model, parse_yaml
from nas.errors import ConfigError, SpaceError
from nas.evaluation.record import OBJECTIVES
from nas.mechanisms import seeds
from nas.search.algorithm import Materials, check_algorithm, make_algorithm
from nas.search.novelty import Novelty
from nas.space import SearchSpace
from nas.store import Document, RunSetup
from nas.validation import PolicyFile, compile_policy, load_policy
from nas.variation import Variation

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pydantic

    from nas.evaluation.record import Objective
    from nas.search.algorithm import Algorithm

MAX_SEED: Final = 2**63
MAX_COUNT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """How to search.

    Args:
        algorithm: one of ``nas.search.algorithm.ALGORITHMS``.
        population: new candidates a generation.
        generations: how many, the first one included.
        seed: of the search; training seeds derive from it.
        repeats: trainings of each candidate, each with its own seed.

    Raises:
        ConfigError: an unknown algorithm, or a number outside its range.
    """

    algorithm: str = "nsga2"
    population: int = 50
    generations: int = 50
    seed: int = 0
    repeats: int = 1

    def __post_init__(self) -> None:
        check_algorithm(self.algorithm)
        for name in ("population", "generations", "repeats"):
            check_count(name, getattr(self, name))
        if not 0 <= self.seed < MAX_SEED:
            raise ConfigError(f"seed: found {self.seed}; expected a number from 0 to 2^63 - 1.")


def check_count(name: str, number: int) -> None:
    """Refuse a count below one, or above what any run can do.

    Raises:
        ConfigError: names what it counts.
    """
    if not 1 <= number <= MAX_COUNT:
        raise ConfigError(f"{name}: found {number}; expected a number from 1 to {MAX_COUNT:,}.")


def objectives_of(space: SearchSpace) -> tuple[Objective, ...]:
    """The space's objectives.

    Raises:
        SpaceError: there is no such objective, or one stands twice.
    """
    for name in space.objectives:
        if name not in OBJECTIVES:
            raise SpaceError(
                f"space {space.name}, objectives: there is no objective "
                f"{name!r}{near(name, OBJECTIVES)}; expected some of {', '.join(OBJECTIVES)}."
            )
        if space.objectives.count(name) > 1:
            raise SpaceError(f"space {space.name}, objectives: {name!r} stands twice.")
    return tuple(OBJECTIVES[name] for name in space.objectives)


def check_space(space: SearchSpace) -> None:
    """Find out early what is wrong with a space.

    Raises:
        ConfigError: it contradicts its policy, mechanisms or objectives.
    """
    objectives_of(space)
    policy = load_policy(space.policy)
    seeds(space, policy)
    Variation(space, policy).sample(np.random.default_rng(0))


def ends(
    objectives: tuple[Objective, ...], *, num_classes: int, mha: Mapping[str, float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ideal and reference point, the same for every run of a task.

    Ideal is an accuracy of 1 and no cost; the reference is chance and twice the cost of standard
    attention.

    Args:
        num_classes: of the data; chance is one in so many.
        mha: what standard attention costs in each minimised objective.
    """
    ideal = tuple(1.0 if o.direction == "max" else 0.0 for o in objectives)
    reference = tuple(
        1.0 / num_classes if o.direction == "max" else 2.0 * mha[o.name] for o in objectives
    )
    return ideal, reference


def make_setup(
    space: SearchSpace,
    task: Document,
    settings: Settings,
    *,
    num_classes: int,
    mha: Mapping[str, float],
    choices: Mapping[str, Any] | None = None,
) -> RunSetup:
    """Freeze all that decides what a run finds.

    Args:
        task: frozen already, with a fingerprint of task and data together.
        num_classes, mha: see ``ends``.
        choices: how trainings are computed, as plain data (nas.evaluation.choices); none go
            by rules of thumb.

    Raises:
        ConfigError: the space contradicts its policy, mechanisms or objectives.
    """
    objectives = objectives_of(space)
    policy = load_policy(space.policy)
    ideal, reference = ends(objectives, num_classes=num_classes, mha=mha)
    return RunSetup(
        seed=settings.seed,
        space=Document.of(space.name, as_text(space)),
        policy=Document.of(policy.name, as_text(policy.file)),
        task=task,
        algorithm=settings.algorithm,
        population=settings.population,
        generations=settings.generations,
        repeats=settings.repeats,
        objectives=objectives,
        ideal_point=ideal,
        reference_point=reference,
        choices=choices or {},
    )


def frozen_algorithm(setup: RunSetup, *, dim: int, heads: int, depth: int) -> Algorithm:
    """The run's algorithm at its start, from the frozen copies of space and policy.

    Args:
        dim, heads, depth: the task's sizes, at which mechanisms are told apart.

    Raises:
        ConfigError: the space contradicts its policy or mechanisms.
    """
    space = from_text(setup.space, SearchSpace)
    policy = compile_policy(from_text(setup.policy, PolicyFile), setup.policy.name)
    materials = Materials(
        operators=Variation(space, policy),
        novelty=Novelty(policy, partial(resolved_digest, dim=dim, heads=heads, depth=depth)),
        mechanisms=seeds(space, policy),
        population=setup.population,
        num_objectives=len(setup.objectives),
        seed=setup.seed,
    )
    return make_algorithm(setup.algorithm, materials)


def as_text(model: pydantic.BaseModel) -> str:
    """A space, policy or task as YAML, defaults written out: they may change one day."""
    return dump_yaml(model.model_dump(mode="json", by_alias=True))


def from_text(document: Document, model: type[M]) -> M:
    """What ``as_text`` wrote.

    Raises:
        ConfigError: this version of nas reads it differently; names the place.
    """
    where = f"the run's copy of {document.name}"
    return parse_model(parse_yaml(document.text, where), model, where)
