"""The model of quality and its power transform, compared with formulas and known truths."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import yeojohnson

from nas.genome.mechanisms import MECHANISMS, mechanism
from nas.searching.algorithm import TrialResult
from nas.searching.archive import Archive
from nas.searching.power_transform import YeoJohnson
from nas.searching.quality_model import NoisyGP
from nas.store import Proposal
from tests.searching.driving import OBJECTIVES

NOISE = 0.01


def model_of(seed: int, repeats: int = 1, count: int = 80) -> tuple[NoisyGP, dict[str, float]]:
    """A model of noisy scores, and the true qualities: a smooth function plus a residual."""
    rng = np.random.default_rng(seed)
    model, truth = NoisyGP(), {}
    for i in range(count):
        x = {f"f{j}": float(rng.integers(3)) for j in range(3)} | {"log macs": float(rng.random())}
        key = f"{i:04x}"
        truth[key] = 0.3 + 0.04 * np.sin(sum(x.values())) + 0.01 * rng.standard_normal()
        for _ in range(repeats if i % 5 else 3):
            model.tell(key, x, truth[key] + NOISE * rng.standard_normal())
    return model, truth


def test_estimates_have_nominal_coverage_and_the_best_is_less_biased_than_its_score() -> None:
    inside, closer, noises, lucky, believed = [], [], [], [], []
    for seed in range(12):
        model, truth = model_of(seed)
        means, errors = model.estimate(list(truth))
        true = np.array(list(truth.values()))
        inside += list(np.abs(means - true) <= 1.2816 * errors)  # 80 % of a normal distribution
        raw = np.array([np.mean(model.observed[key].scores) for key in truth])
        closer.append(np.mean((means - true) ** 2) / np.mean((raw - true) ** 2))
        noises.append(model.noise)
        best = int(raw.argmax())
        lucky.append(raw[best] - true[best])
        believed.append(means[best] - true[best])
    assert 0.72 <= np.mean(inside) <= 0.88
    assert np.mean(closer) < 0.8
    assert np.mean(noises) == pytest.approx(NOISE, rel=0.2)
    assert np.mean(lucky) > 0.005
    assert abs(np.mean(believed)) < 0.5 * np.mean(lucky)


def test_estimates_equal_the_formula() -> None:
    model, truth = model_of(3, count=20)
    keys = list(truth)
    kernel = model.posterior.kernel
    x = [model.observed[key].features for key in keys]
    names = sorted(x[0])
    spread = np.std([row["log macs"] for row in x])
    rows = np.array([[r[n] / (spread if n == "log macs" else 1.0) for n in names] for r in x])
    apart = np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(-1))
    centred = rows - rows.mean(axis=0)
    linear = centred @ centred.T / (centred**2).sum(axis=1).mean()
    prior = kernel.signal_variance * np.exp(-apart / kernel.length)
    prior += kernel.linear_variance * linear + kernel.residual_variance * np.eye(20)
    counts = np.array([len(model.observed[key].scores) for key in keys])
    scores = np.array([np.mean(model.observed[key].scores) for key in keys])
    bend = YeoJohnson.fit(scores)
    bent = bend.transform(scores)
    levels = scores
    for _ in range(2):  # noise as of the scores, then as of what is believed
        noise = kernel.noise / counts * bend.derivative(levels) ** 2
        gain = prior @ np.linalg.inv(prior + np.diag(noise))
        wanted = bent.mean() + gain @ (bent - bent.mean())
        levels = bend.inverse(wanted)
    left = np.sqrt(np.diag(prior - gain @ prior))
    means, errors = model.estimate(keys)
    expected = bend.moments(wanted, left)
    np.testing.assert_allclose(means, expected[0], atol=1e-6)
    np.testing.assert_allclose(errors, expected[1], atol=1e-5)
    draws = model.draws(keys, 4000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(0), means, atol=6 * errors.max() / 4000**0.5)
    np.testing.assert_allclose(draws.std(0), errors, rtol=0.1)


def results(values: list[float | None]) -> list[TrialResult]:
    genomes = [mechanism(name).genome for name in list(MECHANISMS)[: len(values)]]
    return [
        TrialResult(
            i, genomes[i], f"{i:04x}", f"{i:04x}", None if v is None else (-v, 1e5 - 1e3 * i), {}
        )
        for i, v in enumerate(values)
    ]


def test_archive_leaves_out_failures_and_fits_nothing_to_few_results() -> None:
    archive = Archive(OBJECTIVES[:2])
    archive.tell(results([0.3, None, 0.5]))
    assert [one.key for one in archive.known] == ["0000", "0002"]
    means, errors = archive.estimates()
    assert means[:, 0].tolist() == [-0.3, -0.5]
    assert not errors.any()
    again = results([0.3, None, 0.5])[2]
    archive.tell([TrialResult(3, again.genome, again.digest, again.key, None, {}, is_repeat=True)])
    assert [one.key for one in archive.known] == ["0000"]


def test_reevaluation_selects_likely_members_that_are_not_pending() -> None:
    rng = np.random.default_rng(0)
    archive = Archive(OBJECTIVES[:2])
    archive.tell(results([0.3 + 0.01 * float(rng.random()) for _ in range(10)]))
    first = archive.select_reevaluation()
    assert first is not None
    (p,) = (e.p for e in archive.new_posterior()[0] if e.key == first.key)
    assert p > 0.1
    where = {"number": first.number, "attempt": 0, "digest": first.digest, "key": first.key}
    made = {"operator": "sample", "name": None, "parents": (), "verdict": "new"}
    archive.pending = [Proposal(**where, **made, genome=first.genome, formula="", costs={})]
    second = archive.select_reevaluation()
    assert second is not None
    assert second.key != first.key


def test_a_missed_gate_does_not_count_as_seed_noise() -> None:
    rng = np.random.default_rng(0)
    passing = [0.3 + 0.004 * i + 0.001 * float(rng.standard_normal()) for i in range(12)]
    history = results([*passing, 0.05, 0.05, 0.05])
    again = results([0.302, None, 0.31, None, 0.316])
    history += [replace(again[i], number=20 + i, is_repeat=True) for i in (0, 2, 4)]
    # A repeat of a mechanism that had passed misses the gate.
    missed = replace(
        history[6], number=30, costs=None, trainings=((math.inf, history[6].costs[1]),)
    )
    archive = Archive(OBJECTIVES[:2])
    archive.tell([*history, replace(missed, is_repeat=True)])
    (model,) = archive.models.values()
    assert model.noise < 0.01
    assert len(model.observed[history[6].key].scores) == 1
    keys = [result.key for result in archive.known]
    estimates = dict(zip(keys, archive.estimates()[0][:, 0], strict=True))
    assert history[6].key not in estimates
    assert estimates[history[0].key] == pytest.approx(-passing[0], abs=0.01)


def test_mechanisms_like_those_that_missed_a_gate_are_predicted_to_miss_it() -> None:
    costs = {"macs": 1e5}

    def told(number: int, name: str, is_missed: bool) -> TrialResult:
        projections = replace(mechanism(name).genome.projections, has_wv=number % 2 == 0)
        genome = replace(mechanism(name).genome, projections=projections)
        row, key = (-0.3 - 0.001 * number, 1e5), f"{number:04x}"
        return TrialResult(number, genome, key, key, None if is_missed else row, (row,), costs)

    archive = Archive(OBJECTIVES[:2])
    passing = [told(i, n, False) for i, n in enumerate(("mha", "gqa", "mqa", "rsqa") * 3)]
    candidates = [(mechanism(name).genome, costs) for name in ("ssqa", "uniform")]
    archive.tell(passing)
    assert archive.p_feasible(candidates).tolist() == [1.0, 1.0]
    archive.tell([told(20 + i, "uniform", True) for i in range(4)])
    similar, missing = archive.p_feasible(candidates)
    assert missing < 0.2
    assert similar > 0.8
    # Trainings that missed the gate do not enter the model of accuracy.
    assert archive.models[0].observed.keys() == {result.key for result in passing}


def test_estimates_of_many_mechanisms_are_as_good_as_of_few(monkeypatch: Any) -> None:
    """Beyond the bound the process is conditioned on a part, and fitted at steps."""
    covered, better, nearer = [], [], []
    for seed in range(6):
        exact, truth = model_of(seed, count=148)
        keys = list(truth)
        with monkeypatch.context() as patch:
            patch.setattr("nas.searching.gaussian_process.MOST_CONDITIONED", 60)
            bounded, _ = model_of(seed, count=148)
            means, errors = bounded.estimate(keys)
            posterior = bounded.posterior
            draws = bounded.draws(keys[-30:], 2000, np.random.default_rng(0))
        assert posterior.num_trainings < len(bounded._order)  # the last trainings are not fitted
        assert len(posterior._rows) == 60
        true = np.array(list(truth.values()))
        covered += list(np.abs(means - true) <= 1.2816 * errors)
        raw = np.array([np.mean(bounded.observed[key].scores) for key in keys])
        better.append(np.mean((means - true) ** 2) / np.mean((raw - true) ** 2))
        np.testing.assert_allclose(draws.mean(0), means[-30:], atol=0.002)
        np.testing.assert_allclose(draws.std(0), errors[-30:], rtol=0.2)
        exact_means, _ = exact.estimate(keys)
        nearer.append(np.mean((means - exact_means) ** 2) / np.mean((raw - exact_means) ** 2))
    assert np.mean(nearer) < 0.8
    assert 0.72 <= np.mean(covered) <= 0.88
    assert np.mean(better) < 0.95


SCORES = np.random.default_rng(0).normal(0.3, 0.1, 50)


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0, 1.6, 2.0])
def test_transform_equals_scipy_and_is_inverted(power: float) -> None:
    bend = YeoJohnson(power, float(SCORES.mean()), float(SCORES.std()))
    bent = bend.transform(SCORES)
    t = (SCORES - SCORES.mean()) / SCORES.std()
    np.testing.assert_allclose(bent, yeojohnson(t, power), atol=1e-12)
    np.testing.assert_allclose(bend.inverse(bent), SCORES, atol=1e-12)
    step = 1e-6
    slope = (bend.transform(SCORES + step) - bend.transform(SCORES - step)) / (2 * step)
    np.testing.assert_allclose(bend.derivative(SCORES), slope, rtol=1e-6)


def test_moments_equal_moments_of_samples() -> None:
    bend = YeoJohnson(1.6, 0.3, 0.05)
    mean, deviation = np.array([-1.0, 0.0, 1.5]), np.array([0.2, 0.4, 0.3])
    draws = np.random.default_rng(3).normal(mean, deviation, (200_000, 3))
    found, error = bend.moments(mean, deviation)
    scores = bend.inverse(draws)
    np.testing.assert_allclose(found, scores.mean(0), atol=3e-4)
    np.testing.assert_allclose(error, scores.std(0), rtol=0.02)
    surely, nothing = bend.moments(mean, np.zeros(3))
    np.testing.assert_allclose(surely, bend.inverse(mean))
    np.testing.assert_allclose(nothing, 0, atol=1e-9)
