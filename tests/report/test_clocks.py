"""A clock set while a run was written: all is shown, and nothing took less than no time."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nas.api.doctor import check_run
from nas.report.run_view import session_seconds
from nas.store import open_run
from tests.recorded_run import MakeRun


@pytest.fixture(scope="module", params=[-300, 10**6], ids=["back", "ahead"])
def folder(request: pytest.FixtureRequest, make_run: MakeRun, tmp_path_factory: Any) -> Path:
    """A run whose clock jumped in its middle, and never came back."""
    minutes = (i if i < 40 else i + request.param for i in count())
    return make_run(tmp_path_factory.mktemp("jumped"), minutes=minutes)


def test_front_does_not_depend_on_the_clock(folder: Path, recorded_run: Path) -> None:
    with open_run(folder) as run, open_run(recorded_run) as other:
        assert [m.digest for m in run.front()] == [m.digest for m in other.front()]
    assert check_run(folder) == []


def test_no_time_is_negative(folder: Path) -> None:
    with open_run(folder) as run:
        assert min(session_seconds(run)) >= 0
