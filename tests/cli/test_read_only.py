"""A folder that nobody may write to: what is there is shown, and all else ends in a sentence."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def read_only(recorded_run: Path, tmp_path: Path) -> Iterator[None]:
    """The working folder: a file system that holds ``runs/example``, mounted to be read alone."""
    root = tmp_path / "mounted"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(root)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount, where it may at all")
    try:
        shutil.copytree(recorded_run, root / "runs" / "example")
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
        with contextlib.chdir(root):
            yield
    finally:
        subprocess.run(["umount", str(root)], check=True)


@pytest.mark.usefixtures("read_only")
@pytest.mark.parametrize("command", ["front example", "show example/best", "check example"])
def test_commands_that_read_work_on_a_read_only_folder(nas: Any, command: str) -> None:
    assert nas(*command.split()).status == 0


@pytest.mark.usefixtures("read_only")
@pytest.mark.parametrize(
    "command",
    [
        "search --space quickstart --gens 1 --pop 4 --task recall",
        "resume example --gens 40",
        "confirm example",
        "export example/best -o best.py",
        "report example -o page.html",
        "front example --csv front.csv",
        "benchmark mha uniform --tasks recall --seeds 2 --record record.jsonl",
    ],
)
def test_commands_that_write_are_refused_on_a_read_only_folder(nas: Any, command: str) -> None:
    result = nas(*command.split())
    assert result.status == 2
    (said,) = (line for line in result.err.splitlines() if line.startswith("nas: "))
    assert "Read-only file system" in said or "folder that can be written to" in said
