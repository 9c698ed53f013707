"""The front contains only successful mechanisms; mechanisms are found by name or digest."""

from __future__ import annotations

import dataclasses
import math

import pytest

from nas.common.errors import RunError
from nas.store import find_candidate, find_proposal


def test_front_is_the_non_dominated_best_accuracy_first(writer, samples):
    values = [(0.5, 900.0), (0.3, 100.0), (0.4, 950.0), (0.7, 1500.0), (0.3, 100.0)]
    proposals = samples.fill(writer, values)
    members = writer.run.front()
    assert [member.proposal for member in members] == [proposals[i] for i in (3, 0, 1, 4)]
    assert members[0].objectives == {"accuracy": 0.7, "macs": 1500.0}
    assert (members[0].errors, members[0].p) == ({}, None)
    assert [c.proposal for c in writer.run.candidates()] == proposals


def test_front_leaves_out_every_failure(writer, samples):
    (good,) = samples.fill(writer, [(0.2, 1000.0)])
    bad = samples.proposal(1)
    writer.record_proposals([bad, samples.proposal(2)])
    # A candidate that diverged may well have recorded splendid numbers before.
    splendid = samples.failure(metrics={"accuracy": 0.99, "loss": math.nan})
    samples.record(writer, bad.key, 0, splendid)
    assert [member.proposal for member in writer.run.front()] == [good]
    assert find_candidate(writer.run, bad.digest) is None


def test_front_takes_means_and_waits_for_all_repeats(new_run, samples):
    writer = new_run(repeats=3)
    whole, partial, broken = proposals = [samples.proposal(i) for i in range(3)]
    writer.record_proposals(proposals)
    for repeat, accuracy in enumerate((0.1, 0.2, 0.6)):
        samples.record(writer, whole.key, repeat, samples.evaluation(accuracy))
    samples.record(writer, broken.key, 2, samples.failure())
    assert writer.run.counts().evaluated == 1
    for repeat in range(2):
        samples.record(writer, partial.key, repeat, samples.evaluation(0.9))
        samples.record(writer, broken.key, repeat, samples.evaluation(0.9))
    (member,) = writer.run.front()
    assert member.proposal == whole
    assert len(member.trainings) == 3
    assert member.objectives["accuracy"] == pytest.approx(0.3)
    # deviations -0.2, -0.1, 0.3: variance 0.14 / 2, over the root of 3
    assert member.errors == {"accuracy": pytest.approx(math.sqrt(0.07 / 3))}
    assert member.objectives["macs"] == 1000.0
    counts = writer.run.counts()
    assert (counts.proposed, counts.evaluated, counts.failed) == (3, 2, 1)


def test_front_replayed_proposals_count_but_are_no_members(writer, samples):
    (first,) = samples.fill(writer, [(0.5, 10.0)])
    replayed = samples.proposal(1, digest="f" * 16, key=first.key, verdict="replayed", costs={})
    rejected = samples.proposal(1, 1, key=None, verdict="rejected", costs={})
    writer.record_proposals([replayed, rejected])
    assert [member.digest for member in writer.run.front()] == [first.digest]
    counts = dataclasses.asdict(writer.run.counts())
    ends = {"evaluated": 1, "repeated": 0, "replayed": 1, "rejected": 1, "failed": 0, "stopped": 0}
    assert counts == {"proposed": 3} | ends
    # Asked for by its own name, the replayed one has the result that it was given.
    found = find_candidate(writer.run, "f" * 16)
    assert found is not None
    assert found.objectives["accuracy"] == 0.5


def test_front_hypervolume_is_a_share_of_the_box(new_run, samples):
    writer = new_run()  # between accuracy 0.1 and 1, MACs 2000 and 0
    samples.fill(writer, [(0.55, 1000.0)])
    assert writer.run.hypervolume(writer.run.front()) == pytest.approx(0.25)
    outside = new_run(name="two")
    assert outside.run.hypervolume(outside.run.front()) == 0.0
    samples.fill(outside, [(0.05, 1000.0), (0.5, 3000.0)])
    assert outside.run.hypervolume(outside.run.front()) == 0.0


def test_find_proposal_best_knee_cheapest(writer, samples):
    best, knee, cheapest, _ = samples.fill(
        writer, [(0.6, 1900.0), (0.55, 400.0), (0.2, 100.0), (0.1, 500.0)]
    )
    found = [find_proposal(writer.run, name) for name in ("best", "knee", "cheapest")]
    assert found == [best, knee, cheapest]


def test_find_proposal_by_the_beginning_of_a_digest(writer, samples):
    first = samples.proposal(0, digest="abc1" + "0" * 12)
    second = samples.proposal(1, digest="abc2" + "0" * 12)
    writer.record_proposals([first, second])
    assert find_proposal(writer.run, "abc1") == first
    assert find_proposal(writer.run, "ABC2") == second
    assert find_proposal(writer.run, second.digest) == second
    with pytest.raises(RunError, match="one/abd: no genome of this run"):
        find_proposal(writer.run, "abd")
    with pytest.raises(RunError) as caught:
        find_proposal(writer.run, "abc")
    assert f"one/abc: 2 digests begin so: {first.digest}, {second.digest}." in str(caught.value)
    writer.record_proposals([samples.proposal(i, digest=f"b{i:015d}") for i in range(2, 22)])
    with pytest.raises(RunError, match=r"20 digests .* and 12 more"):
        find_proposal(writer.run, "b")
