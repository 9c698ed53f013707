"""Shell completion offers commands, options and names, without heavy imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nas.cli import completion

ROOT = Path(__file__).resolve().parents[2]
START = """import sys
from nas.cli import main
try:
    main([])
finally:
    heavy = {"torch", "numpy", "ray", "sqlite3"} & set(sys.modules)
    assert not heavy, heavy
"""


def words(line: str, folder: Path) -> list[str]:
    """The completions of the last word of a line, requested as bash does."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_NAS_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    done = subprocess.run(
        [sys.executable, "-c", START], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("good", "$(touch bad)", "a;b", "`id`", "-x", "a b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.sqlite").touch()
    return tmp_path


def test_run_names_with_shell_syntax_are_not_completed(folder: Path) -> None:
    assert completion.runs() == ["latest", "good"]
    assert words("nas show good", folder) == ["good/best", "good/knee", "good/cheapest"]


def test_commands_and_options_are_completed(folder: Path) -> None:
    assert words("nas doc", folder) == ["doctor"]
    assert words("nas search --space qui", folder) == ["quickstart"]
    assert "--install-completion" in words("nas --ins", folder)
