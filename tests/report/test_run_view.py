"""What a view computes from a run's record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from nas.common.objectives import as_costs
from nas.common.pareto import dominates
from nas.report.run_view import RunView, session_seconds


def test_published_mechanisms_and_what_dominates_them(view: RunView) -> None:
    named = dict(view.named)
    # A mechanism that was trained again has its name once.
    assert {"mha", "ssqa", "uniform", "champion_2025"} <= named.keys()
    # At the task's sizes: a quarter of four heads is one head.
    assert "gqa = mqa" in named
    assert view.reference_candidate is named["mha"]
    objectives = view.setup.objectives
    for member in view.members:
        beaten = view.dominated_by(member)
        assert all(0.5 <= p <= 1 for p in beaten.values())
        for name, other in view.named:
            costs = [as_costs(objectives, one.objectives) for one in (member, other)]
            assert all((part in beaten) == dominates(*costs) for part in name.split(" = "))


def test_a_killed_session_ended_with_the_last_generation_before_the_next() -> None:
    def at(minutes: float) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=minutes)

    def session(start: float, end: float | None) -> Any:
        ended = None if end is None else at(end)
        return SimpleNamespace(started=at(start), ended=ended, workers=2)

    generations = [SimpleNamespace(finished=at(minutes)) for minutes in (1, 2.5, 12)]
    run: Any = SimpleNamespace(
        generations=lambda: generations, sessions=lambda: (session(0, None), session(10, 14))
    )
    assert session_seconds(run) == (60 * 6.5, 0.0)
    run.sessions = lambda: (session(0, 3), session(10, 14))
    assert session_seconds(run) == (60 * 7, 60 * 14)
