"""How a search went: what each operator's mechanisms were worth."""

from __future__ import annotations

from typing import Any

import pytest

from nas.report.page.sections import operators_of
from nas.report.run_view import RunView


def test_operators_account_for_every_mechanism(view: RunView) -> None:
    found = operators_of(view)
    assert sum(one.trained for one in found) == len(view.trained) == 279
    assert sum(one.stayed for one in found) == len(view.members)
    assert all(one.stayed <= one.joined <= one.trained for one in found)
    whole = sum(one.core_seconds for one in found)
    assert whole == pytest.approx(view.core_seconds)
    assert {one.name: one.trained for one in found}["crossover"] == 167
    assert next(one for one in found if one.name == "sample").gain is None


def test_gain_is_over_the_better_parent(view: RunView) -> None:
    """Of the one `see` among the front's ancestors that has a parent, by hand."""
    one = next(o for o in operators_of(view) if o.name == "remove")
    children = [m for m in view.trained.values() if m.proposal.operator == "remove"]

    def accuracy(mechanism: Any) -> float:
        return float(mechanism.objectives["accuracy"])

    gains = [
        accuracy(child) - max(accuracy(view.by_digest[p]) for p in child.proposal.parents)
        for child in children
    ]
    assert one.gain is not None
    assert one.gain[0] == pytest.approx(sum(gains) / len(gains))
