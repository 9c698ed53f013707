"""The power transform, compared with scipy and with samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import yeojohnson

from nas.searching.power_transform import YeoJohnson

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
