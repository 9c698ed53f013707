"""The choice of trainings under the target task, and the front of those that had one."""

from __future__ import annotations

import numpy as np

from nas.costs import costs_of
from nas.genome.mechanisms import MECHANISMS
from nas.searching.algorithm import TrialResult
from nas.searching.target_archive import SPREAD, TargetArchive
from tests.recorded_run import ACCURACY, MACS, SETTING

NUM = 40
NUM_TARGET = SPREAD + 4


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
    ordered = sorted(found, key=lambda key: found[key][1]["macs"])[:NUM]
    assert len(ordered) == NUM
    archive = TargetArchive((ACCURACY, MACS), work_ratio=5.0)
    rng, results = np.random.default_rng(0), []
    for is_target, keys in ((False, ordered), (True, ordered[first : first + NUM_TARGET])):
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
    assert option.result.key in ordered[-8:]


def test_members_are_those_that_no_reported_mechanism_dominates() -> None:
    """Here cheaper mechanisms without target trainings dominate all that have one."""
    archive, ordered = archive_of(slope=-0.01, first=NUM - NUM_TARGET)
    estimates, _ = archive.new_posterior()
    assert {e.key for e in estimates} == set(ordered[-NUM_TARGET:])
    best = max(estimates, key=lambda e: e.means[ACCURACY.name])
    assert best.is_member
    assert best.p < 0.05
