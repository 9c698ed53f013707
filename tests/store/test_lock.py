"""The lock of a run folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nas.store import lock

ASK = "import sys; from pathlib import Path; from nas.store import lock; "
ASK += "print(lock.is_held(Path(sys.argv[1])))"


def ask(folder: Path) -> str:
    """Whether another process finds the lock held."""
    command = [sys.executable, "-c", ASK, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_lock_is_seen_by_this_process_and_by_others(tmp_path):
    (tmp_path / lock.LOCK_FILE).write_bytes(b"process 1 on elsewhere\xff" * 50)  # left by a kill
    assert not lock.is_held(tmp_path)
    held = lock.acquire(tmp_path)
    assert lock.is_held(tmp_path)
    assert ask(tmp_path) == "True"
    assert ask(tmp_path) == "True"
    held.release()
    assert not lock.is_held(tmp_path)
    assert ask(tmp_path) == "False"
