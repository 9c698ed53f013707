"""`nas show`: a member of a run with its results."""

from __future__ import annotations

from pathlib import Path

import pytest

from nas.report.show import ShowResult, examine, show
from nas.store import open_run
from nas.store.sources import resolve

from .conftest import Printed


def text(shown: ShowResult, width: int | None = None) -> Printed:
    printed = Printed(width)
    show(printed.console, shown)
    return printed


@pytest.fixture(scope="module")
def best(recorded_run: Path) -> ShowResult:
    return examine(resolve("example/best", recorded_run.parent))


def test_a_member_of_a_run_has_results_and_parents(recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        child = next(c.proposal for c in run.candidates() if c.is_ok and c.proposal.parents)
    data = examine(resolve(f"{recorded_run}/{child.digest}")).to_dict()
    assert data["parents"] == list(child.parents)
    assert data["operator"] == child.operator
    measured = [one["metrics"]["accuracy"] for one in data["trainings"]]
    assert data["scores"]["accuracy"] == pytest.approx(sum(measured) / len(measured))
    assert data["scores"]["accuracy"] != data["objectives"]["accuracy"]
    assert 0 <= data["p_non_dominated"] <= 1
