"""Kill -9 loses no reported record; a run is read while another process writes it."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys

import pytest

from nas.common.errors import RunError
from nas.store import open_run, open_writer

# Goes on with the run: what is not evaluated yet is, and reported when the store says it is.
WRITE = """
import sys
from pathlib import Path
from nas.evaluation.trial import Budget, Evaluation, Training
from nas.store import Session, open_writer
writer = open_writer(Path(sys.argv[1]), Session("nas resume", {}, "a CPU"))
proposals = writer.run.proposals()
print("open", flush=True)
for i, proposal in enumerate(proposals):
    if not writer.run.trainings(keys=[proposal.key]):
        metrics, budget = {"accuracy": i % 97 / 97}, Budget(1, 2, "float32")
        evaluation = Evaluation("ok", None, metrics, (), i, budget, 0.1, 0.1, 1, "w")
        place = "search", "task", "vit", proposal.key, "", 0
        writer.record_training(Training(*place, evaluation), 0)
        print(proposal.key, flush=True)
writer.close()
"""
TRY = """
import sys
from pathlib import Path
from nas.common.errors import RunError
from nas.store import Session, open_writer
try:
    open_writer(Path(sys.argv[1]), Session("nas resume", {}, "a CPU"))
except RunError as error:
    sys.exit(str(error))
"""

# A finished run has a rollback journal, also while its kind of journal is being changed.
HALF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1] + "/run.sqlite", isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
long = "json_set(record, '$.name', hex(randomblob(2000)))"
connection.execute(f"UPDATE trainings SET record = {long}")
os.kill(os.getpid(), signal.SIGKILL)
"""


@contextlib.contextmanager
def started(code, folder):
    """A context with a process that runs code and has printed "open"."""
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "open\n"
            yield process
        finally:
            process.kill()


def try_to_write(folder):
    """The error of another process that opens the run for writing; empty without an error."""
    command = [sys.executable, "-c", TRY, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if done.stderr else 0)
    return done.stderr


def test_kill_9_loses_no_reported_training(new_run, samples):
    with new_run() as writer:
        writer.record_proposals([samples.proposal(i) for i in range(1_000)])
        folder = writer.run.folder
    moments, reported = random.Random(0), set()
    for _ in range(3):
        with started(WRITE, folder) as process:
            reported |= {process.stdout.readline() for _ in range(moments.randrange(1, 40))}
            process.kill()
            reported |= {line for line in process.stdout if line.endswith("\n")}
        with open_run(folder) as run:
            assert run.status == "stopped"
            assert run.sessions()[-1].ended is None
            recorded = {f"{training.key}\n" for training in run.trainings()}
        assert reported <= recorded
        # At most the one in flight at each kill was recorded without being reported.
        assert len(recorded) <= len(reported) + 3
    assert len(reported) > 3


def test_reader_rolls_back_the_transaction_of_a_killed_process(new_run, samples):
    with new_run() as writer:
        samples.fill(writer, [(i / 100, float(i)) for i in range(100)])
    folder = writer.run.folder
    with open_run(folder) as run:
        before = run.trainings()
    subprocess.run([sys.executable, "-c", HALF, str(folder)], check=False)
    assert (folder / "run.sqlite-journal").exists()
    with open_run(folder) as run:
        assert run.trainings() == before
    assert not (folder / "run.sqlite-journal").exists()


def test_second_writer_is_refused_in_any_process(writer, samples):
    folder = writer.run.folder
    message = f"run 'one' is being written by process {os.getpid()} on "
    with pytest.raises(RunError, match=message):
        open_writer(folder, samples.session)
    with open_run(folder) as run:
        assert run.status == "running"
    # Neither the refusal nor the reading has dropped the lock.
    refusal = try_to_write(folder)
    assert message in refusal
    assert f"`nas resume {folder}`" in refusal
    assert refusal.count("\n") == 1
    writer.close()
    assert try_to_write(folder) == ""
