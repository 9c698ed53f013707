"""On a read-only file system runs can be read, and commands that write are refused."""

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
    """Work in a read-only file system that contains ``runs/example``."""
    root = tmp_path / "mounted"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(root)], capture_output=True)
    if mounted.returncode:
        pytest.skip("this user may not mount")
    try:
        shutil.copytree(recorded_run, root / "runs" / "example")
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
        with contextlib.chdir(root):
            yield
    finally:
        subprocess.run(["umount", str(root)], check=True)


@pytest.mark.usefixtures("read_only")
def test_a_read_only_folder_is_read_and_not_written_to(nas: Any) -> None:
    assert nas("front", "example").status == 0
    result = nas("export", "example/best", "-o", "best.py")
    assert result.status == 2
    (message,) = (line for line in result.err.splitlines() if line.startswith("nas: "))
    assert "Read-only file system" in message or "folder that can be written to" in message
