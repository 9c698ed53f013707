"""What a run's table and picture are made of, from the record alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from nas.pareto import dominates
from nas.report.facts import Facts, headline, id_length, tally
from nas.store import front, open_run


def test_facts_agree_with_the_store(facts: Facts, recorded_run: Path) -> None:
    with open_run(recorded_run) as run:
        assert facts.members == front(run)
        assert facts.summary.counts == run.counts()
        assert facts.hypervolume == run.generations()[-1].hypervolume


def test_named_mechanisms_are_told_by_what_they_are_at_the_tasks_sizes(facts: Facts) -> None:
    named = dict(facts.named)
    assert {"mha", "ssqa", "uniform", "champion_2025"} <= named.keys()
    # A quarter of four heads is one head.
    assert "gqa = mqa" in named
    assert facts.standard is named["mha"]


def test_a_member_beats_the_named_mechanisms_that_it_dominates(facts: Facts) -> None:
    for member in facts.members:
        beaten = facts.beaten_by(member)
        for name, other in facts.named:
            is_beaten = dominates(facts.costs(member), facts.costs(other))
            assert all((part in beaten) == is_beaten for part in name.split(" = "))


def test_titles_name_ends_and_knee_of_the_front(facts: Facts) -> None:
    assert "best" in facts.titles[facts.members[0].digest]
    assert "cheapest" in facts.titles[facts.members[-1].digest]
    assert sum(map(len, facts.titles.values())) == 3


def test_id_length_tells_all_digests_apart() -> None:
    assert id_length(()) == id_length(("00112233aabb",)) == 8
    assert id_length(("00112233aabb", "01112233aabb")) == 8
    assert id_length(("00112233aabb", "00112233aacc", "f0112233aacc")) == 11


def test_sentences(facts: Facts) -> None:
    assert headline(facts) == (
        "run example · space attention_v2 · task vit-cifar10 · seed 7 · nsga2 · finished, "
        "3 of 3 generations"
    )
    words = dict(tally(facts))
    assert words["failed"] == "1 (1 diverged)"
    assert words["proposed"].startswith("36: ")
    assert words["time"].startswith("3 min 00 s; ")
    assert "reference: accuracy 10.0 %, macs 4.00 M" in words["hypervolume"]


def test_time_is_training_or_the_search_itself(facts: Facts, recorded_run: Path) -> None:
    """From the end of one generation to that of the next; the first is left out."""
    with open_run(recorded_run) as run:
        first, *later = run.generations()
        workers = run.sessions()[0].session.workers
        trained = idle = 0.0
        before = first
        for generation in later:
            own: dict[str, float] = {}
            for p in run.proposals(generation.number):
                evaluation = run.evaluation(p.key or "", 0) if p.outcome == "new" else None
                if evaluation is not None:
                    own.setdefault(evaluation.worker, 0.0)
                    own[evaluation.worker] += evaluation.wall_seconds
            trained += sum(own.values())
            idle += (generation.finished - before.finished).total_seconds() - max(own.values())
            before = generation
        wall = (before.finished - first.finished).total_seconds()
    assert facts.busy == pytest.approx(trained / (wall * workers))
    assert facts.overhead == pytest.approx(idle / wall)
    assert facts.busy is not None
    assert facts.overhead is not None
    busy, search = 100 * facts.busy, 100 * facts.overhead
    assert f"workers busy {busy:.1f} %, search itself {search:.1f} %" in dict(tally(facts))["time"]
