"""What a run's table and picture are made of, from the record alone."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nas.common.pareto import dominates
from nas.report.facts import (
    RunFacts,
    headline,
    id_length,
    session_seconds,
    tally,
    task_and_data,
)
from nas.report.units import duration
from nas.store import Document, find_proposal, front, open_run


def test_facts_agree_with_the_store(facts: RunFacts, recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        assert facts.members == front(run)
        assert facts.summary.counts == run.counts()
        assert facts.hypervolume == run.generations()[-1].hypervolume
        for title in ("best", "knee", "cheapest"):
            assert title in facts.titles[find_proposal(run, title).digest]
        (past,) = run.sessions()
        evaluations = run.evaluations().values()
    assert "best" in facts.titles[facts.members[0].digest]
    assert sum(map(len, facts.titles.values())) == 3
    assert past.ended is not None
    seconds = (past.ended - past.started).total_seconds()
    assert facts.wall_seconds == pytest.approx(seconds)
    trained = sum(e.wall_seconds for e in evaluations)
    assert facts.busy == pytest.approx(min(1.0, trained / (seconds * past.session.workers)))


def test_named_mechanisms_and_who_beats_them(facts: RunFacts) -> None:
    named = dict(facts.named)
    # One of them was trained again; it is still called by its name once.
    assert {"mha", "ssqa", "uniform", "champion_2025"} <= named.keys()
    # At the task's sizes: a quarter of four heads is one head.
    assert "gqa = mqa" in named
    assert facts.standard is named["mha"]
    for member in facts.members:
        beaten = facts.beaten_by(member)
        assert all(0.5 <= p <= 1 for p in beaten.values())
        for name, other in facts.named:
            is_beaten = dominates(facts.costs(member), facts.costs(other))
            assert all((part in beaten) == is_beaten for part in name.split(" = "))


def test_id_length_tells_all_digests_apart() -> None:
    assert id_length(()) == id_length(("00112233aabb",)) == 8
    assert id_length(("00112233aabb", "01112233aabb")) == 8
    assert id_length(("00112233aabb", "00112233aacc", "f0112233aacc")) == 11


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("made", "made"),
        ("hf:tales/book/long:train", "hf:tales/book/long:train"),
        ("hf:/home/of/somebody/book", "folder book"),
        ("imagefolder:~/cifar10", "folder cifar10"),
    ],
)
def test_a_headline_names_no_whole_path(facts: RunFacts, data: str, shown: str) -> None:
    task = Document("bytes", f"kind: bytes\ndata: {data}\n", "0011223344556677")
    setup = dataclasses.replace(facts.setup, task=task)
    assert task_and_data(setup) == f"bytes on {shown}"


def test_sentences(facts: RunFacts) -> None:
    assert headline(facts) == (
        "run example · space attention_v2 · task vit-cifar10 · seed 7 · nsga2 · finished, "
        "3 of 3 generations"
    )
    words = dict(tally(facts))
    assert words["failed"] == "1 (1 diverged)"
    assert words["proposed"].startswith(
        f"{facts.summary.counts.proposed}: 34 evaluated, 2 repeated, "
    )
    assert words["time"].startswith(f"{duration(facts.wall_seconds)}; ")
    assert f"workers busy {100 * (facts.busy or 0):.1f} %" in words["time"]
    assert words["hypervolume"].endswith("(reference: accuracy 10.0 %, MACs 4.00 M)")


def test_a_killed_session_ended_with_the_last_generation_before_the_next() -> None:
    def at(minutes: float) -> datetime:
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(minutes=minutes)

    def session(start: float, end: float | None) -> Any:
        ended = None if end is None else at(end)
        return SimpleNamespace(started=at(start), ended=ended, session=SimpleNamespace(workers=2))

    generations = [SimpleNamespace(finished=at(minutes)) for minutes in (1, 2.5, 12)]
    run: Any = SimpleNamespace(
        generations=lambda: generations, sessions=lambda: (session(0, None), session(10, 14))
    )
    assert session_seconds(run) == (60 * 6.5, 0.0)
    run.sessions = lambda: (session(0, 3), session(10, 14))
    assert session_seconds(run) == (60 * 7, 60 * 14)
