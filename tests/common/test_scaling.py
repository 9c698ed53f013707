"""Effective speed-ups by the law of the reference, from losses with a known law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.scaling import EXPONENT, IRREDUCIBLE, SCALE, constant, falling, simulate
from nas.common.scaling import Scaling, SizeScores


def ladder(seed: int = 0, **options: Any) -> Scaling:
    return Scaling(simulate(np.random.default_rng(seed), **options), ideal=0.0)


@pytest.mark.parametrize("speedup", [constant, falling])
def test_precise_losses_give_back_the_law_and_the_speedups(speedup: Any) -> None:
    evidence = ladder(noise=(1e-7,) * 4, speedup=speedup)
    law = evidence.law
    assert (law.irreducible, law.scale, law.exponent) == pytest.approx(
        (IRREDUCIBLE, SCALE, EXPONENT), rel=0.02
    )
    assert law.loss(1.0) == pytest.approx(IRREDUCIBLE + SCALE, abs=1e-4)
    true = [speedup(compute) for compute in (1 / 16, 1 / 4, 1.0, 4.0)]
    # The times have an error of 4 %, which is in the intervals.
    for value, found in zip(true, evidence.speedups(), strict=True):
        assert found.value == pytest.approx(value, rel=0.05)
        assert (found.low or 0) < value < (found.high or np.inf)
    change, projection = evidence.trend(16.0)
    assert change.value == pytest.approx(speedup(10.0) / speedup(1.0), rel=0.03)
    assert projection.value == pytest.approx(speedup(64.0), rel=0.1)


def test_intervals_contain_the_true_speedup_of_most_ladders() -> None:
    rng, sizes = np.random.default_rng(2), (1 / 16, 1 / 2, 4.0)
    ladders = [Scaling(simulate(rng, sizes=sizes, noise=(0.012,) * 3), 0.0) for _ in range(40)]
    estimates = [estimate for each in ladders for estimate in each.speedups()]
    held = [(e.low or 0.0) < 1.3 < (e.high or np.inf) for e in estimates]
    assert 0.88 <= np.mean(held) < 1  # 95 % of 120, three standard errors below


def test_losses_that_move_together_in_a_pair_give_narrower_intervals() -> None:
    def width(shared: float) -> float:
        last = ladder(shared=shared).speedups()[-1]
        return (last.high or np.inf) / (last.low or 0.0)

    assert width(0.95) < width(0.0)


def test_a_loss_that_the_reference_never_reaches_has_no_upper_bound() -> None:
    sizes = simulate(np.random.default_rng(0))
    last = sizes[-1]
    losses = np.array(last.losses)
    losses[:, 1] = IRREDUCIBLE - 0.2
    reached = Scaling([*sizes[:-1], SizeScores(last.compute, losses, last.times)], 0.0)
    assert reached.speedups()[-1].high is None


def test_results_that_are_on_no_law_are_doubtful() -> None:
    sizes = simulate(np.random.default_rng(0))
    assert not Scaling(sizes, 0.0).is_law_doubtful
    moved = [
        SizeScores(each.compute, np.array(each.losses) + shift, each.times)
        for each, shift in zip(sizes, (0.0, 0.2, 0.0, 0.2), strict=True)
    ]
    assert Scaling(moved, 0.0).is_law_doubtful


def test_a_mechanism_without_noise_is_no_slower_than_one_with_noise() -> None:
    sizes = []
    for each in simulate(np.random.default_rng(0), seeds=3):
        losses = np.array(each.losses)
        losses[:, 1] = 0.0
        sizes.append(SizeScores(each.compute, losses, each.times))
    for speedup in Scaling(sizes, 0.0).speedups():
        assert speedup.low is not None
        assert speedup.low > 1
        assert speedup.high is None
