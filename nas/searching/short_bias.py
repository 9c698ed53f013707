"""What the short task of a run with a target task overrates, by the model of both tasks.

The bias of a mechanism is the part of its target score that its short quality does not explain
(``TargetPosterior.bias``). A feature's effect on it is the mean over the
mechanisms with the feature minus the mean over those without, among the mechanisms with target
trainings. Effects are reported only if they differ clearly from 0: the features are many, and some
occur together, so an effect is an association and not a cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from nas.common.objectives import Objective
from nas.searching.gaussian_process import LOG
from nas.searching.quality_model import features
from nas.searching.target_archive import SPREAD
from nas.searching.target_model import TargetModel
from nas.store import Candidate

if TYPE_CHECKING:
    Array = NDArray[np.float64]

LEAST: Final = 4  # mechanisms with and without a feature that an effect requires
CLEAR: Final = 3.0  # least effect in standard errors, since there are many features
MOST: Final = 3  # reported effects
Z_95: Final = 1.96


@dataclass(frozen=True)
class Effect:
    """The effect of a feature on the bias of the short task.

    Attributes:
        feature: name of the feature, see ``nas.searching.quality_model.features``.
        mean: by how much the short task overrates mechanisms with the feature, in the unit of the
            metric; negative if it underrates them.
        low, high: the 95 % interval of ``mean``.
    """

    feature: str
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ShortBias:
    """The bias of a run's short task.

    Attributes:
        effects: clear effects of features, the clearest first.
        residual: standard deviation of the target quality that the short quality does not explain
            and no feature, in the unit of the metric.
        front_spread: standard deviation of the front's estimates; None with fewer than two members.
    """

    effects: tuple[Effect, ...]
    residual: float
    front_spread: float | None


def short_bias(
    metric: Objective, candidates: Iterable[Candidate], front: Sequence[Candidate]
) -> ShortBias | None:
    """Return the bias of a run's short task; None with fewer than ``SPREAD`` target mechanisms.

    Args:
        metric: the first metric of the run.
        candidates: all mechanisms of the run.
        front: the members of its front.
    """
    model = _model_of(metric, candidates)
    if len(model.target) < SPREAD:
        return None
    posterior = model.posterior
    scores = np.array([row.mean for row in model.target.values()])
    slope = float(posterior.transform.derivative(scores).mean())
    differences, errors = posterior.bias()
    values = [member.objectives[metric.name] for member in front]
    return ShortBias(
        effects=_effects(model, differences / slope, errors / slope**2),
        residual=math.sqrt(posterior.link.residual_variance) / slope,
        front_spread=float(np.std(values)) if len(values) > 1 else None,
    )


def _model_of(metric: Objective, candidates: Iterable[Candidate]) -> TargetModel:
    model, worst = TargetModel(), metric.as_cost(metric.reference)
    for candidate in candidates:
        trainings = (*candidate.trainings, *(candidate.target or ()))
        if candidate.trainings and all(t.evaluation.is_ok for t in trainings):
            row = features(candidate.proposal.genome, candidate.costs)
            for training in trainings:
                cost = metric.as_cost(training.evaluation.metrics[metric.name])
                is_target = training.purpose == "target"
                model.tell(candidate.key, row, min(cost, worst), is_target=is_target)
    return model


def _effects(model: TargetModel, mean: Array, covariance: Array) -> tuple[Effect, ...]:
    """Return the clear effects of features.

    Args:
        mean: means of the mechanisms' bias; costs, so that positive is overrated, (mechanisms,).
        covariance: covariances of the bias.
    """
    rows = [model.observed[key].features for key in model.target]
    found: dict[bytes, tuple[float, Effect]] = {}
    for name in sorted({name for row in rows for name in row if not name.startswith(LOG)}):
        has = np.array([bool(row.get(name)) for row in rows])
        if not LEAST <= has.sum() <= len(rows) - LEAST:
            continue
        weights = np.where(has, 1 / has.sum(), -1 / (~has).sum())
        effect = float(weights @ mean)
        error = math.sqrt(max(float(weights @ covariance @ weights), 0.0))
        if abs(effect) > CLEAR * error:
            low, high = effect - Z_95 * error, effect + Z_95 * error
            # Features of the same mechanisms, or of all others, have the same effect.
            which = max(has.tobytes(), (~has).tobytes())
            found.setdefault(which, (abs(effect) / error, Effect(name, effect, low, high)))
    clearest = sorted(found.values(), key=lambda pair: -pair[0])[:MOST]
    return tuple(effect for _, effect in clearest)
