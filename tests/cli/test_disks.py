"""On a full disk a search loses and changes nothing; on a read-only one runs can be read."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos import num_done, outcome, run_undisturbed, search, start_command

GENERATIONS = 2


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 8 MB."""
    root = tmp_path / "mounted"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(root)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount")
    try:
        yield root
    finally:
        subprocess.run(["umount", str(root)], check=True)


def started(folder: Path) -> subprocess.Popen[str]:
    """A search that has recorded two trainings."""
    process = start_command(folder, search(GENERATIONS, "a"), "--backend", "local")
    while num_done(folder / "runs" / "a") < 2:
        assert process.poll() is None
        time.sleep(0.05)
    return process


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


@pytest.mark.slow
def test_search_on_a_full_disk_ends_and_is_resumed(tmp_path: Path, disk: Path) -> None:
    expected = run_undisturbed(tmp_path, GENERATIONS)
    process = started(disk)
    fill(disk / "filled")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert [line for line in err.splitlines() if line.startswith("nas: ")] == [err.splitlines()[-1]]
    assert "Traceback" not in err
    run = disk / "runs" / "a"
    recorded = outcome(run)["trainings"]
    assert 2 <= len(recorded) < len(expected["trainings"])
    assert recorded.items() <= expected["trainings"].items()
    (disk / "filled").unlink()
    resumed = start_command(disk, "resume a --backend local")
    _, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    assert outcome(run) == expected


def test_a_read_only_folder_is_read_and_not_written_to(
    nas: Any, recorded_run: Path, disk: Path
) -> None:
    shutil.copytree(recorded_run, disk / "runs" / "example")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with chdir(disk):
        assert nas("front", "example").status == 0
        result = nas("export", "example/best", "-o", "best.py")
    assert result.status == 2
    (message,) = (line for line in result.err.splitlines() if line.startswith("nas: "))
    assert "Read-only file system" in message or "folder that can be written to" in message
