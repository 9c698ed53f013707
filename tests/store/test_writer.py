"""Records read back as written, and generations follow from them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections import Counter

import pytest

from nas.common.errors import RunError
from nas.evaluation.trial import Training
from nas.store import find_proposal, open_run, open_writer
from nas.store.files import write_file
from nas.store.records import Estimate
from nas.store.weights import remove_weights, weights_path


def test_writer_proposals_read_back_in_order(writer, samples):
    proposals = [
        samples.proposal(0, operator="mechanism", name="mha"),
        samples.proposal(1, verdict="rejected", key=None, note="no normalize", costs={}),
        samples.proposal(1, 1, operator="crossover", parents=(samples.digest(1), "0" * 16)),
        samples.proposal(4, verdict="replayed", costs={}),
    ]
    writer.record_proposals(reversed(proposals))
    assert writer.run.proposals() == tuple(proposals)
    assert writer.run.is_exhausted


def test_writer_proposals_are_recorded_all_or_none(writer, samples):
    twice = samples.proposal(1, key=samples.proposal(0).key)
    with pytest.raises(RunError, match="refuses a record"):
        writer.record_proposals([samples.proposal(0), twice])
    assert writer.run.proposals() == ()


def test_only_a_failure_is_replaced_by_another_result(writer, samples):
    writer.record_proposals(
        [samples.proposal(0, key="good"), samples.proposal(1, key="failed", digest="e" * 16)]
    )
    samples.record(writer, "failed", 0, samples.failure("error"))
    samples.record(writer, "good", 0, samples.evaluation())
    assert writer.run.counts().failed == 1
    samples.record(writer, "failed", 0, samples.evaluation())
    with pytest.raises(RunError, match="refuses a record"):
        samples.record(writer, "good", 0, samples.failure("error"))
    counts = writer.run.counts()
    assert (counts.evaluated, counts.failed) == (2, 0)


def test_counts_agree_with_the_status_of_candidates(new_run, samples):
    writer = new_run(population=9, repeats=2, target=samples.setup().task)
    stopped = samples.evaluation(status="stopped", error="accuracy 0.1: below 0.2")
    cases = [
        ([samples.failure(), stopped], []),
        ([stopped, samples.evaluation()], []),
        ([samples.evaluation()] * 2, [samples.failure()]),
        ([samples.evaluation()] * 2, [stopped]),
        ([samples.evaluation()] * 2, [samples.evaluation()]),
    ]
    proposals = [samples.proposal(i) for i in range(len(cases))]
    writer.record_proposals(proposals)
    for proposal, (short, long) in zip(proposals, cases, strict=True):
        for repeat, evaluation in enumerate(short):
            samples.record(writer, proposal.key, repeat, evaluation)
        for evaluation in long:
            samples.record(writer, proposal.key, 0, evaluation, "target")
    statuses = Counter(candidate.status for candidate in writer.run.candidates())
    counts = writer.run.counts()
    assert (counts.failed, counts.stopped) == (statuses["failed"], statuses["stopped"]) == (2, 2)
    assert counts.evaluated == len(cases)


def test_a_retried_training_deletes_generations_that_depend_on_it_only(writer, samples):
    task = writer.run.setup.task
    place = "target", task.fingerprint, task.name, "key", "", 0
    writer.record_generation(0, [], 0.5, None)
    for evaluation in (samples.failure(), samples.failure("error")):
        writer.record_training(Training(*place, evaluation), None)
    assert len(writer.run.generations()) == 1
    writer.record_training(Training(*place, samples.evaluation()), 0)
    assert writer.run.generations() == ()


def test_run_generations_are_as_recorded(new_run, samples):
    writer = new_run(population=2, generations=3)
    proposals = [samples.proposal(i, costs={"macs": 1000.0}) for i in range(4)]
    again = samples.proposal(1, 1, digest="f" * 16, verdict="replayed", key="0" * 16, costs={})
    repeat = dataclasses.replace(proposals[0], number=4, verdict="repeated")
    writer.record_proposals([*proposals, again, repeat])
    for i in range(3):
        samples.record(writer, proposals[i].key, 0, samples.evaluation(0.1 * i))
    samples.record(writer, proposals[3].key, 0, samples.failure())
    assert writer.run.generations() == ()
    keys = [proposal.key for proposal in proposals]

    def believed(i, accuracy, p, is_member):
        means = {"accuracy": accuracy, "macs": 1000.0}
        return Estimate(keys[i], means, {"accuracy": 0.02}, p, is_member)

    first = [believed(0, 0.2, 0.9, True), believed(1, 0.2, 0.9, True)]
    writer.record_generation(0, first, 0.125, 0.2)
    second = [believed(0, 0.3, 0.2, False), believed(1, 0.25, 0.1, False)]
    second.append(believed(2, 0.4, 0.9, True))
    writer.record_generation(1, second, 0.25, 0.4)
    one, two = writer.run.generations()
    assert writer.run.generations(first=1) == (two,)
    assert (one.hypervolume, one.best, two.hypervolume, two.best) == (0.125, 0.2, 0.25, 0.4)
    assert one.front == (proposals[0].digest, proposals[1].digest)
    assert two.front == (proposals[2].digest,)
    assert dataclasses.astuple(writer.run.counts()) == (6, 4, 1, 1, 0, 1, 0)
    # Of past generations the front alone is kept; what is recorded again replaces what was.
    assert writer.run.estimates() == tuple(sorted(second, key=lambda e: e.key))
    writer.record_generation(1, second[:1], 0.5, 0.3)
    assert writer.run.estimates() == (second[0],)
    assert [g.hypervolume for g in writer.run.generations()] == [0.125, 0.5]
    # Mechanisms that are not named keep their estimates, except the front of the generation before.
    writer.record_generation(1, second, 0.25, 0.4)
    third = [believed(2, 0.35, 0.4, False), believed(1, 0.45, 0.9, True)]
    writer.record_generation(2, third, 0.5, 0.4, keeps_others=True)
    assert writer.run.estimates() == tuple(sorted([second[0], *third], key=lambda e: e.key))
    assert [len(g.front) for g in writer.run.generations()] == [2, 1, 1]


def test_front_is_computed_from_estimates(writer, samples):
    values = [(0.9, 1000.0), (0.5, 1000.0), (0.4, 500.0)]
    lucky, steady, cheap = proposals = samples.fill(writer, values)
    assert [m.digest for m in writer.run.front()] == [lucky.digest, cheap.digest]
    means = [(0.48, 1000.0), (0.5, 1000.0), (0.42, 500.0)]
    writer.record_generation(
        0,
        [
            Estimate(p.key, {"accuracy": a, "macs": m}, {"accuracy": 0.02}, 0.5, p is not lucky)
            for p, (a, m) in zip(proposals, means, strict=True)
        ],
        0.2,
        0.5,
    )
    # A mechanism without an estimate waits for the end of its generation.
    late = samples.proposal(3)
    writer.record_proposals([late])
    samples.record(writer, str(late.key), 0, samples.evaluation(0.99))
    best, least = writer.run.front()
    assert (best.digest, least.digest) == (steady.digest, cheap.digest)
    assert best.objectives == {"accuracy": 0.5, "macs": 1000.0}
    assert (best.scores, best.errors, best.p) == ({"accuracy": 0.5}, {"accuracy": 0.02}, 0.5)
    assert find_proposal(writer.run, "best") == steady
    assert writer.run.generations()[-1].best == 0.5


def test_weights_are_written_and_removed_by_key(new_run, samples):
    folder = new_run().run.folder
    remove_weights(folder, ())
    for key in ("aa", "bb", "cc"):
        write_file(weights_path(folder, key), key.encode())
    left = folder / "weights" / f".new-cc.safetensors.{'0' * 32}"
    left.write_bytes(b"left by a kill")
    mine = ["mine.safetensors", "notes.txt"]
    for name in mine:
        (folder / "weights" / name).write_text("a person's own")
    remove_weights(folder, {"aa", "cc", "unknown"})
    names = {path.name for path in (folder / "weights").iterdir()}
    assert names == {"bb.safetensors", *mine}
    assert weights_path(folder, "bb").read_bytes() == b"bb"


def test_writer_status_follows_the_run(writer, samples):
    folder = writer.run.folder
    writer.close()
    writer.close()
    with open_run(folder) as run:
        assert run.status == "stopped"
        assert run.sessions()[0].ended is not None
    with open_writer(folder, samples.session) as again:
        assert again.run.status == "running"
        again.finish("the space is exhausted")
    with open_run(folder) as run:
        assert (run.status, run.sessions()[-1].note) == ("finished", "the space is exhausted")
        assert len(run.sessions()) == 2


def test_confirming_writer_marks_a_killed_search_as_stopped(writer, samples):
    """The status must not be "running" while `nas confirm` holds the lock."""
    folder = writer.run.folder
    writer._resources.close()  # as a kill does: nothing is written
    with open_writer(folder, None) as confirming:
        assert confirming.run.status == "stopped"


def test_writer_is_durable_and_a_closed_run_is_one_file(writer):
    (mode,) = writer.run.query("PRAGMA journal_mode")
    (level,) = writer.run.query("PRAGMA synchronous")
    assert (mode, level) == (("wal",), (2,))  # 2 is FULL
    writer.close()
    names = {path.name for path in writer.run.folder.iterdir()}
    copies = {"policy.yaml", "space.yaml", "task.yaml"}
    assert names == copies | {"lock", "run.sqlite"}


FULL_DISK = """
import resource, sys
from pathlib import Path
from nas.common.errors import RunError
from nas.store import Document, Session, open_writer
writer = open_writer(Path(sys.argv[1]), Session("nas resume", {}, "a CPU"))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for i in range(10_000):
        writer.raise_generations(i)
except RunError as error:
    print(error)
writer.close()
"""


def test_full_disk_is_refused(new_run):
    with new_run() as writer:
        folder = writer.run.folder
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(folder)], capture_output=True, text=True, check=True
    )
    assert "run.sqlite: cannot be used" in done.stdout
    assert "disk is not full" in done.stdout
    assert done.stdout.count("\n") == 1
    with open_run(folder) as run:
        assert run.status == "stopped"
