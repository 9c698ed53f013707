"""A search whose disk fills, or whose database another process locks, loses and changes nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.chaos import num_done, outcome, run_undisturbed, search, start_command

GENERATIONS = 2
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return run_undisturbed(tmp_path_factory.mktemp("calm"), GENERATIONS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 8 MB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this user may not mount")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


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


def test_search_on_a_full_disk_ends_and_is_resumed(expected: dict, small_disk: Path) -> None:
    process = started(small_disk)
    fill(small_disk / "filled")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert [line for line in err.splitlines() if line.startswith("nas: ")] == [err.splitlines()[-1]]
    assert "Traceback" not in err
    run = small_disk / "runs" / "a"
    recorded = outcome(run)["trainings"]
    assert 2 <= len(recorded) < len(expected["trainings"])
    assert recorded.items() <= expected["trainings"].items()
    (small_disk / "filled").unlink()
    resumed = start_command(small_disk, "resume a --backend local")
    _, err = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, err
    assert outcome(run) == expected
