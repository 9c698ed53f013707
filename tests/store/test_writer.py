"""What is recorded is there, in full, and a replay is compared with it."""

from __future__ import annotations

import dataclasses
import math
import re
import sqlite3  # noqa: TID251 - this is how a person without the project reads a run
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nas.errors import RunError
from nas.evaluation.record import REASONS
from nas.store import Counts, Generation, RunWriter, open_run, open_writer
from nas.training.curve import Epoch

NewRun = Callable[..., RunWriter]


def make_generation(samples: Any, **changes: Any) -> Generation:
    generation = Generation(
        number=0,
        started=samples.now,
        finished=samples.now + timedelta(seconds=90),
        hypervolume=0.1 + 0.2,
        best_accuracy=0.5,
        counts=Counts(proposed=5, evaluated=3, replayed=1, rejected=1, failed=1),
        front=(samples.digest("a"), samples.digest("b")),
    )
    return dataclasses.replace(generation, **changes)


def test_writer_setup_and_session_read_back(new_run: NewRun, samples: Any) -> None:
    writer = new_run()
    with open_run(writer.run.folder) as run:
        assert run.setup == samples.setup()
        assert run.status == "running"
        (session,) = run.sessions()
    assert session.session == samples.session
    assert session.ended is None
    assert session.pid > 0


def test_writer_proposals_read_back_in_order(new_run: NewRun, samples: Any) -> None:
    writer = new_run()
    proposals = [
        samples.proposal(0),
        samples.proposal(1, origin="crossover", parents=(samples.digest(1), samples.digest(2))),
        samples.proposal(2, outcome="rejected", key=None, note="no normalize before aggregate"),
        samples.proposal(0, generation=1, outcome="replayed"),
    ]
    assert writer.record_proposals(reversed(proposals)) == 4
    assert writer.run.proposals() == tuple(proposals)
    assert writer.run.proposals(generation=1) == (proposals[3],)


def test_writer_evaluation_reads_back_exactly(new_run: NewRun, samples: Any) -> None:
    writer = new_run()
    proposal = samples.proposal(0)
    writer.record_proposals([proposal])
    evaluation = samples.evaluation(accuracy=0.1 + 0.2, wall_seconds=1 / 3, execution="cuda graph")
    assert writer.run.evaluation(proposal.key) is None
    writer.record_evaluation(proposal.key, 0, evaluation)
    with open_run(writer.run.folder) as run:
        assert run.evaluation(proposal.key) == evaluation
        assert run.evaluation(proposal.key, 1) is None
        assert run.evaluations() == {(proposal.key, 0): evaluation}


@pytest.mark.parametrize("reason", REASONS)
def test_writer_failure_reads_back_exactly(new_run: NewRun, samples: Any, reason: str) -> None:
    writer = new_run()
    proposal = samples.proposal(0)
    writer.record_proposals([proposal])
    curve = (Epoch(1, math.inf, 0.1), Epoch(2, math.nan, 0.1))
    failure = samples.failure(reason, curve=curve, objectives={"accuracy": math.nan})
    writer.record_evaluation(proposal.key, 0, failure)
    # NaN is not equal to itself, its text is.
    assert repr(writer.run.evaluation(proposal.key)) == repr(failure)


def test_writer_text_that_is_no_unicode_is_kept_readable(new_run: NewRun, samples: Any) -> None:
    writer = new_run()
    proposal = samples.proposal(0)
    writer.record_proposals([proposal])
    writer.record_evaluation(proposal.key, 0, samples.failure(error="no file \udcff\0'; --"))
    evaluation = writer.run.evaluation(proposal.key)
    assert evaluation is not None
    assert evaluation.error == "no file \\udcff\0'; --"


def test_writer_recording_a_proposal_again_changes_nothing(new_run: NewRun, samples: Any) -> None:
    writer = new_run()
    proposals = [samples.proposal(i) for i in range(3)]
    assert writer.record_proposals(proposals[:2]) == 2
    assert writer.record_proposals(proposals) == 1
    # The formula is for reading: a better one in a later version is no difference.
    assert writer.record_proposals([samples.proposal(0, formula="written better")]) == 0
    assert writer.run.proposals() == tuple(proposals)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"digest": "f" * 16}, "digest, key"),
        ({"origin": "crossover"}, "origin"),
        ({"parents": ("a" * 16,)}, "parents"),
        ({"outcome": "replayed"}, "outcome"),
    ],
)
def test_writer_a_proposal_that_differs_is_refused(
    new_run: NewRun, samples: Any, changes: dict[str, Any], named: str
) -> None:
    writer = new_run()
    writer.record_proposals([samples.proposal(0), samples.proposal(1)])
    with pytest.raises(RunError) as caught:
        writer.record_proposals([samples.proposal(2), samples.proposal(1, **changes)])
    message = str(caught.value)
    assert "run 'one', generation 0, proposal 1" in message
    assert f"differ in {named})" in message
    assert "start a new run" in message
    assert len(writer.run.proposals()) == 2


def test_writer_a_difference_names_what_changed_since(new_run: NewRun, samples: Any) -> None:
    with new_run() as writer:
        writer.record_proposals([samples.proposal(0)])
    later = dataclasses.replace(samples.session, versions={"nas": "0.1", "torch": "3.0"})
    match = r"torch changed from 2\.9 to 3\.0"
    with open_writer(writer.run.folder, later) as again, pytest.raises(RunError, match=match):
        again.record_proposals([samples.proposal(0, origin="crossover")])


def test_writer_an_evaluation_nobody_proposed_is_our_mistake(new_run: NewRun, samples: Any) -> None:
    with pytest.raises(AssertionError, match="was not proposed"):
        new_run().record_evaluation("0" * 16, 0, samples.evaluation())


def test_writer_an_evaluation_without_an_objective_is_our_mistake(
    new_run: NewRun, samples: Any
) -> None:
    writer = new_run()
    proposal = samples.proposal(0)
    writer.record_proposals([proposal])
    with pytest.raises(AssertionError):
        writer.record_evaluation(proposal.key, 0, samples.evaluation(objectives={"accuracy": 0.5}))
    with pytest.raises(AssertionError):
        writer.record_evaluation(proposal.key, 1, samples.evaluation())


def test_writer_training_twice_is_our_mistake(new_run: NewRun, samples: Any) -> None:
    writer = new_run(repeats=2)
    (proposal,) = samples.fill(writer, [(0.5, 10.0)])
    writer.record_evaluation(proposal.key, 1, samples.evaluation())
    with pytest.raises(AssertionError, match="trained twice"):
        writer.record_evaluation(proposal.key, 1, samples.evaluation())


def test_writer_generation_reads_back_and_keeps_its_times(new_run: NewRun, samples: Any) -> None:
    writer = new_run()
    generation = make_generation(samples)
    writer.record_generation(generation)
    later = make_generation(samples, started=generation.finished)
    writer.record_generation(later)
    assert writer.run.generations() == (generation,)
    writer.record_generation(make_generation(samples, number=1, best_accuracy=None))
    assert [g.best_accuracy for g in writer.run.generations()] == [0.5, None]


@pytest.mark.parametrize(
    "changes", [{"hypervolume": 0.3}, {"front": ()}, {"counts": Counts(proposed=4)}]
)
def test_writer_a_generation_that_differs_is_refused(
    new_run: NewRun, samples: Any, changes: dict[str, Any]
) -> None:
    writer = new_run()
    writer.record_generation(make_generation(samples))
    with pytest.raises(RunError, match=f"generation 0: {next(iter(changes))[:4]}|proposed"):
        writer.record_generation(make_generation(samples, **changes))


def test_writer_status_follows_the_run(new_run: NewRun, samples: Any) -> None:
    writer = new_run()
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
        assert (run.status, run.note) == ("finished", "the space is exhausted")
        assert len(run.sessions()) == 2


def test_writer_more_generations_can_be_asked_for(new_run: NewRun) -> None:
    writer = new_run()
    writer.raise_generations(5)
    writer.raise_generations(1)
    assert writer.run.setup.generations == 5


def test_writer_is_durable_and_a_closed_run_is_one_file(new_run: NewRun) -> None:
    writer = new_run()
    (mode,) = writer._database.query("PRAGMA journal_mode")
    (level,) = writer._database.query("PRAGMA synchronous")
    assert (mode["journal_mode"], level["synchronous"]) == ("wal", 2)  # 2 is FULL
    writer.close()
    names = {path.name for path in writer.run.folder.iterdir()}
    copies = {"choices.yaml", "policy.yaml", "space.yaml", "task.yaml"}
    assert names == copies | {"lock", "run.sqlite"}


def test_writer_a_run_reads_with_plain_sqlite(new_run: NewRun, samples: Any) -> None:
    with new_run() as writer:
        samples.fill(writer, [(0.5, 1000.0), (0.4, 500.0)])
    connection = sqlite3.connect(writer.run.folder / "run.sqlite")
    found = connection.execute(
        "SELECT json_extract(objectives, '$.accuracy') FROM evaluations ORDER BY 1"
    ).fetchall()
    connection.close()
    assert found == [(0.4,), (0.5,)]


def test_writer_a_run_is_explained_by_its_readme(new_run: NewRun, samples: Any) -> None:
    readme = Path(__file__).parents[2] / "runs" / "README.md"
    statements = re.findall(r"```sql\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    assert len(statements) >= 4
    with new_run() as writer:
        samples.fill(writer, [(0.5, 1000.0), (0.4, 500.0), (0.3, 700.0)])
        bad = samples.proposal(3)
        writer.record_proposals([bad])
        writer.record_evaluation(bad.key, 0, samples.failure())
        writer.record_generation(make_generation(samples))
    connection = sqlite3.connect(writer.run.folder / "run.sqlite")
    for statement in statements:
        assert connection.execute(statement).fetchall(), statement
    connection.close()


FULL_DISK = """
import resource, sys
from pathlib import Path
from nas.errors import RunError
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


def test_writer_a_full_disk_is_one_sentence(new_run: NewRun) -> None:
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
