"""What a run is begun with, and how the frozen copies in its folder become objects again.

A new run works from its frozen copies too, so that one that is resumed cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nas.config import M, dump_yaml, near, parse_model, parse_yaml
from nas.errors import ConfigError, SpaceError
from nas.mechanisms import seeds
from nas.objectives import COST_REFERENCE, QUALITY, Objective, of_metric
from nas.searching.algorithm import ALGORITHMS, Materials
from nas.searching.costing import cost_units
from nas.searching.novelty import Judge
from nas.searching.proposing import Proposer
from nas.space import SearchSpace
from nas.store import Document
from nas.validation import PolicyFile, compile_policy, load_policy
from nas.variation import Variation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pydantic

    from nas.genome import Genome, ModelSizes
    from nas.objectives import Metric
    from nas.store import RunSetup

MAX_SEED: Final = 2**63
MAX_COUNT: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """How to search.

    Args:
        algorithm: one of ``nas.searching.algorithm.ALGORITHMS``.
        population: new candidates a generation.
        generations: how many, the first one included.
        seed: of the search; training seeds derive from it.
        repeats: trainings of each candidate, each with its own seed.
        lag: proposal t is computed from the results up to t - lag, so that workers never wait for
            a generation's end; a few times the workers. None for generations.

    Raises:
        ConfigError: an unknown algorithm, or a number outside its range.
    """

    algorithm: str = "nsga2"
    population: int = 50
    generations: int = 50
    seed: int = 0
    repeats: int = 1
    lag: int | None = None

    def __post_init__(self) -> None:
        ALGORITHMS.get(self.algorithm)
        for name in ("population", "generations", "repeats"):
            check_count(name, getattr(self, name))
        if self.lag is not None:
            check_count("lag", self.lag)
        if not 0 <= self.seed < MAX_SEED:
            raise ConfigError(f"seed: found {self.seed}; expected a number from 0 to 2^63 - 1.")


def check_count(name: str, number: int) -> None:
    """Refuse a count below one, or above what any run can do.

    Raises:
        ConfigError: names what it counts.
    """
    if not 1 <= number <= MAX_COUNT:
        raise ConfigError(f"{name}: found {number}; expected a number from 1 to {MAX_COUNT:,}.")


def objective_names(space: SearchSpace, metrics: Sequence[Metric]) -> tuple[str, ...]:
    """The space's objectives, ``quality`` resolved to the task's first metric.

    Raises:
        SpaceError: there is no such objective, or one stands twice.
    """
    known = (*(metric.name for metric in metrics), *cost_units())
    names = tuple(metrics[0].name if name == QUALITY else name for name in space.objectives)
    for name in names:
        if name not in known:
            raise SpaceError(
                f"space {space.name}, objectives: there is no objective {name!r}"
                f"{near(name, (QUALITY, *known))}; expected some of "
                f"{', '.join((QUALITY, *known))}."
            )
        if names.count(name) > 1:
            raise SpaceError(f"space {space.name}, objectives: {name!r} stands twice.")
    return names


def make_objectives(
    names: Sequence[str], metrics: Sequence[Metric], mha: Mapping[str, float]
) -> tuple[Objective, ...]:
    """Objectives with their ends: a metric's ideal and chance, nothing and twice mha's for a cost.

    Args:
        mha: what standard attention costs.
    """
    of = {metric.name: of_metric(metric) for metric in metrics}
    for name, (unit, about) in cost_units().items():
        if name in mha:
            reference = COST_REFERENCE * mha[name]
            of[name] = Objective(name, "min", unit, about, 0.0, reference, is_metric=False)
    return tuple(of[name] for name in names)


def check_space(space: SearchSpace, *, is_causal: bool = False) -> None:
    """Find out early what is wrong with a space.

    Raises:
        ConfigError: it contradicts its policy or mechanisms.
    """
    policy = load_policy(space.policy)
    seeds(space, policy, **_causal(is_causal))
    Variation(space, policy, **_causal(is_causal)).sample(np.random.default_rng(0))


def make_proposer(
    setup: RunSetup,
    sizes: ModelSizes,
    costs: Callable[[Genome], Mapping[str, float]],
    *,
    is_causal: bool = False,
) -> Proposer:
    """The run's proposer at its start, from the frozen copies of space and policy.

    Args:
        sizes: the task's, at which mechanisms are told apart.
        costs: of a genome in normal form, by name.

    Raises:
        ConfigError: the space contradicts its policy or mechanisms.
    """
    space = from_text(setup.space, SearchSpace)
    policy = compile_policy(from_text(setup.policy, PolicyFile), setup.policy.name)
    materials = Materials(
        operators=Variation(space, policy, **_causal(is_causal)),
        mechanisms=tuple((m.name, m.genome) for m in seeds(space, policy, **_causal(is_causal))),
        population=setup.population,
        num_objectives=len(setup.objectives),
        seed=setup.seed,
    )
    algorithm = ALGORITHMS.get(setup.algorithm)(materials)
    return Proposer(algorithm, materials, Judge(policy, sizes, costs), lag=setup.lag)


def _causal(is_causal: bool) -> dict[str, Any]:
    return {"is_causal": True} if is_causal else {}


def frozen_space(space: SearchSpace) -> tuple[Document, Document]:
    """Space and policy as a run keeps them."""
    policy = load_policy(space.policy)
    return Document.of(space.name, as_text(space)), Document.of(policy.name, as_text(policy.file))


def as_text(model: pydantic.BaseModel) -> str:
    """A space or policy as YAML, defaults written out: they may change one day."""
    return dump_yaml(model.model_dump(mode="json", by_alias=True))


def from_text(document: Document, model: type[M]) -> M:
    """What ``as_text`` wrote.

    Raises:
        ConfigError: this version of nas reads it differently; names the place.
    """
    where = f"the run's copy of {document.name}"
    return parse_model(parse_yaml(document.text, where), model, where)
