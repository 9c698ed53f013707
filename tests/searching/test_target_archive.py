"""The choice of trainings under the target task."""

from __future__ import annotations

import numpy as np

from nas.costs import costs_of
from nas.genome.mechanisms import MECHANISMS
from nas.searching.results import TrialResult
from nas.searching.target_archive import SPREAD, TargetArchive
from tests.recorded_run import ACCURACY, MACS, SETTING


def test_a_mechanism_that_would_lead_the_reported_front_is_trained_under_the_target_task() -> None:
    """The front reports only mechanisms with target trainings, so the best must get one.

    Here quality grows with the multiply-adds, and the cheapest have target trainings.
    """
    found = {}
    for name, mechanism in MECHANISMS.items():
        resolved = SETTING.resolve(mechanism.genome)
        found.setdefault(
            resolved.key, (name, mechanism.genome, costs_of(resolved, SETTING, ["macs"]))
        )
    ordered = sorted(found.items(), key=lambda item: item[1][2]["macs"])
    ordered = [item for item in ordered if 0 < item[1][2]["macs"] < MACS.reference][:40]
    assert len(ordered) > 2 * SPREAD
    archive = TargetArchive((ACCURACY, MACS), work_ratio=5.0)
    rng, results = np.random.default_rng(0), []
    for is_target, part in ((False, ordered), (True, ordered[: SPREAD + 4])):
        for rank, (key, (_, genome, costs)) in enumerate(part):
            quality = 0.3 + 0.01 * rank + 0.1 * is_target + rng.normal(scale=0.002)
            values = (-quality, costs["macs"])
            number = len(results)
            results.append(
                TrialResult(
                    number,
                    genome,
                    key,
                    key,
                    values,
                    (values,),
                    costs,
                    is_repeat=is_target,
                    is_target=is_target,
                )
            )
    archive.tell(results)
    option = archive.best_option()
    assert option is not None
    assert option.is_target
    assert option.result.key in {key for key, _ in ordered[-8:]}
