"""What a view computes from a run's record, also if a clock was set while it was written."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nas.api.doctor import check_run
from nas.report.run_view import RunView
from nas.store import open_run
from tests.recorded_run import record_run


def test_published_mechanisms_have_all_their_names(view: RunView) -> None:
    named = dict(view.named)
    # A mechanism that was trained again has its name once.
    assert {"mha", "ssqa", "uniform", "champion_2025"} <= named.keys()
    # At the task's sizes: a quarter of four heads is one head.
    assert "gqa = mqa" in named
    assert view.reference_candidate is named["mha"]


def test_a_killed_session_ended_with_the_last_generation_before_the_next(view: RunView) -> None:
    def at(minutes: float) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=minutes)

    def session(start: float, end: float | None) -> Any:
        ended = None if end is None else at(end)
        return SimpleNamespace(started=at(start), ended=ended)

    generations: Any = tuple(SimpleNamespace(finished=at(minutes)) for minutes in (1, 2.5, 12))
    for first_end, minutes in ((None, 6.5), (3, 7)):
        sessions = session(0, first_end), session(10, 14)
        changed = dataclasses.replace(view, generations=generations, sessions=sessions)
        assert changed.wall_seconds == 60 * minutes


@pytest.fixture(scope="module", params=[-300, 10**6], ids=["back", "ahead"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Path:
    """A run whose clock jumped in its middle, and never came back."""
    minutes = (i if i < 40 else i + request.param for i in count())
    return record_run(tmp_path_factory.mktemp("jumped"), minutes=minutes)


def test_front_does_not_depend_on_the_clock(folder: Path, recorded_run: Path) -> None:
    with open_run(folder) as run, open_run(recorded_run) as other:
        assert [m.digest for m in run.front()] == [m.digest for m in other.front()]
    assert check_run(folder) == []


def test_no_time_is_negative(folder: Path) -> None:
    with open_run(folder) as run:
        assert RunView.read(run).wall_seconds >= 0
