"""The model of two tasks, the choice of trainings under the target task, and the front.

The model is compared with plain conditioning of all trainings at once.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from nas.costs import costs_of
from nas.genome.mechanisms import MECHANISMS
from nas.searching.algorithm import TrialResult
from nas.searching.quality_model import NoisyGP
from nas.searching.target_archive import SPREAD, TargetArchive
from nas.searching.target_model import FEWEST, OFFSET, TargetModel
from tests.recorded_run import ACCURACY, MACS, SETTING

NUM, NUM_TARGET = 30, 14


def mechanisms(seed: int = 0) -> NDArray[np.float64]:
    """Counts of four operations in each mechanism, (NUM, 4)."""
    return np.random.default_rng(seed).integers(0, 3, (NUM, 4)).astype(float)


def model(seed: int = 0, bias: float = 0.0, num_target: int = NUM_TARGET) -> TargetModel:
    """A model of invented trainings.

    The short task overrates mechanisms with the operation "a" by ``bias``; costs are negated
    qualities, so that their target costs are higher.
    """
    rng, x = np.random.default_rng(seed), mechanisms(seed)
    short = x @ [-0.2, 0.3, 0.1, 0.0] + 0.1 * rng.standard_normal(NUM)
    target = 0.8 * short + bias * (x[:, 0] > 0) + 0.02 * rng.standard_normal(NUM) - 3
    told = TargetModel()
    for i, row in enumerate(x):
        features = dict(zip("abcd", row, strict=True))
        for _ in range(1 + (i % 5 == 0)):
            told.tell(f"m{i}", features, short[i] + 0.05 * rng.standard_normal())
    for i in range(num_target):
        features = dict(zip("abcd", x[i], strict=True))
        for _ in range(1 + (i % 4 == 0)):
            score = target[i] + 0.03 * rng.standard_normal()
            told.tell_target(f"m{i}", features, score)
    return told


def plain(told: TargetModel) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance of (s, t) of all mechanisms, conditioned on all scores in one step."""
    short, posterior = told.posterior, told.linked
    link, prior, num = posterior.link, short._prior, NUM
    x = mechanisms() - mechanisms().mean(axis=0)
    linear = x @ x.T / (x**2).sum(axis=1).mean()
    own = OFFSET + link.delta_variance * linear + link.residual_variance * np.eye(num)
    both = np.block([[prior, link.rho * prior], [link.rho * prior, link.rho**2 * prior + own]])
    mean = short._centre * np.repeat([1.0, link.rho], num)
    seen = [*range(num), *range(num, num + NUM_TARGET)]
    scores = np.concatenate(
        [
            short.transform.transform(np.array([told.observed[f"m{i}"].mean for i in range(num)])),
            posterior.transform.transform(
                np.array([told.target[f"m{i}"].mean for i in range(NUM_TARGET)])
            ),
        ]
    )
    noise = np.diag(np.concatenate([short._noise, posterior._noise]))
    gain = both[:, seen] @ np.linalg.inv(both[np.ix_(seen, seen)] + noise)
    return mean + gain @ (scores - mean[seen]), both - gain @ both[seen]


def test_posterior_equals_conditioning_on_all_scores_at_once() -> None:
    told = model()
    mean, covariance = plain(told)
    keys = [f"m{i}" for i in reversed(range(NUM))]
    joint = told.linked.joint({key: told.observed[key] for key in keys})
    s, t = np.arange(NUM)[::-1], np.arange(NUM, 2 * NUM)[::-1]
    np.testing.assert_allclose(joint.mean, mean[t], atol=1e-6)
    np.testing.assert_allclose(joint.short_mean, mean[s], atol=1e-6)
    np.testing.assert_allclose(joint.covariance, covariance[np.ix_(t, t)], atol=1e-6)
    np.testing.assert_allclose(joint.across, covariance[np.ix_(s, t)], atol=1e-6)
    np.testing.assert_allclose(joint.short, covariance[np.ix_(s, s)], atol=1e-6)


def test_shift_by_a_training_is_the_standard_deviation_of_estimates_after_it() -> None:
    told = model()
    [by_short], [by_target] = told.shifts(["m20"])
    posterior, short = told.linked, told.posterior
    joint = posterior.joint({"m20": told.observed["m20"]})
    slope = posterior.transform.derivative(posterior.transform.inverse(joint.mean))[0]
    # The variance that a score removes is the variance of the posterior mean before the score.
    own, noise = joint.covariance[0, 0], posterior.link.noise * slope**2
    left = own - own**2 / (own + noise)
    assert by_target == pytest.approx(np.sqrt(own - left) / slope)
    short_slope = short.transform.derivative(short.transform.inverse(joint.short_mean))[0]
    total = joint.short[0, 0] + short.kernel.noise * short_slope**2
    assert by_short == pytest.approx(abs(joint.across[0, 0]) / np.sqrt(total) / slope)


def test_model_returns_short_qualities_until_enough_mechanisms_have_target_trainings() -> None:
    few, enough = model(num_target=FEWEST - 1), model(num_target=FEWEST)
    assert np.array_equal(few.estimate(["m3"]), NoisyGP.estimate(few, ["m3"]))
    assert abs(enough.estimate(["m3"])[0][0] - enough.target["m3"].mean) < 0.3
    assert abs(few.estimate(["m3"])[0][0] - enough.target["m3"].mean) > 2


def test_estimates_cover_target_qualities_that_were_not_trained() -> None:
    inside = []
    for seed in range(6):
        rng, x = np.random.default_rng(seed), mechanisms(seed)
        short = x @ [-0.2, 0.3, 0.1, 0.0] + 0.1 * rng.standard_normal(NUM)
        truth = 0.8 * short + 0.02 * rng.standard_normal(NUM) - 3
        keys = [f"m{i}" for i in range(NUM_TARGET, NUM)]
        means, errors = model(seed).estimate(keys)
        inside += (np.abs(means - truth[NUM_TARGET:]) < 1.2816 * errors).tolist()
    assert 0.65 < np.mean(inside) < 0.97


ARCHIVED = 40
TRAINED = SPREAD + 4


def archive_of(slope: float, first: int) -> tuple[TargetArchive, list[str]]:
    """Return an archive of mechanisms, and their keys from the cheapest to the most expensive.

    Args:
        slope: the difference in quality from a mechanism to the next more expensive one.
        first: the first of the mechanisms that have trainings under the target task.
    """
    found = {}
    for mechanism in MECHANISMS.values():
        resolved = SETTING.resolve(mechanism.genome)
        costs = costs_of(resolved, SETTING, ["macs"])
        if 0 < costs["macs"] < MACS.reference:
            found.setdefault(resolved.key, (mechanism.genome, costs))
    ordered = sorted(found, key=lambda key: found[key][1]["macs"])[:ARCHIVED]
    assert len(ordered) == ARCHIVED
    archive = TargetArchive((ACCURACY, MACS), work_ratio=5.0)
    rng, results = np.random.default_rng(0), []
    for is_target, keys in ((False, ordered), (True, ordered[first : first + TRAINED])):
        for key in keys:
            genome, costs = found[key]
            quality = 0.5 + slope * ordered.index(key) + 0.1 * is_target
            values = (-quality - rng.normal(scale=0.002), costs["macs"])
            fields = (genome, key, key, values, (values,), costs)
            results.append(
                TrialResult(len(results), *fields, is_repeat=is_target, is_target=is_target)
            )
    archive.tell(results)
    return archive, ordered


def test_a_mechanism_that_would_lead_the_reported_front_is_trained_under_the_target_task() -> None:
    """The front reports only mechanisms with target trainings, so the best must get one."""
    archive, ordered = archive_of(slope=0.01, first=0)
    option = archive.best_option()
    assert option is not None
    assert option.is_target
    assert option.result.key in ordered[-ARCHIVED // 4 :]


def test_members_are_those_that_no_reported_mechanism_dominates() -> None:
    """Here cheaper mechanisms without target trainings dominate all that have one."""
    archive, ordered = archive_of(slope=-0.01, first=ARCHIVED - TRAINED)
    estimates, _ = archive.new_posterior()
    assert {e.key for e in estimates} == set(ordered[-TRAINED:])
    best = max(estimates, key=lambda e: e.means[ACCURACY.name])
    assert best.is_member
    assert best.p < 0.05
