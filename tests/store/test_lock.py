"""The lock of a run folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nas.common.errors import RunError
from nas.store import lock, open_writer

ASK = "import sys; from pathlib import Path; from nas.store import lock; "
ASK += "print(lock.is_held(Path(sys.argv[1])))"


def ask(folder: Path) -> str:
    """Whether another process finds the lock held."""
    command = [sys.executable, "-c", ASK, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_lock_is_seen_by_this_process_and_by_others(tmp_path):
    assert not lock.is_held(tmp_path)
    held = lock.acquire(tmp_path)
    assert lock.is_held(tmp_path)
    assert ask(tmp_path) == "True"
    assert ask(tmp_path) == "True"
    held.release()
    assert not lock.is_held(tmp_path)
    assert ask(tmp_path) == "False"


def test_lock_is_the_same_through_a_link(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    held = lock.acquire(tmp_path / "run")
    with pytest.raises(RunError, match="is being written by process"):
        lock.acquire(tmp_path / "link")
    held.release()


def test_lock_file_of_a_killed_process_is_overwritten(tmp_path):
    (tmp_path / lock.LOCK_FILE).write_bytes(b'{"pid": 1, "host": "elsewhere"}\xff' * 50)
    held = lock.acquire(tmp_path)
    assert ask(tmp_path) == "True"
    held.release()


def test_lock_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(RunError, match="cannot be locked for writing"):
        lock.acquire(tmp_path / "nowhere")


def test_lock_is_not_written_through_a_link(new_run, samples, tmp_path):
    new_run().close()
    folder, other = tmp_path / "runs" / "one", tmp_path / "other"
    other.write_text("somebody else's")
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(other)
    with pytest.raises(RunError, match="cannot be locked for writing"):
        open_writer(folder, samples.session)
    assert other.read_text() == "somebody else's"
    assert not lock.is_held(folder)


def test_lock_that_is_a_pipe_is_not_opened(new_run, tmp_path):
    new_run().close()
    folder = tmp_path / "runs" / "one"
    (folder / "lock").unlink()
    os.mkfifo(folder / "lock")
    assert not lock.is_held(folder)
