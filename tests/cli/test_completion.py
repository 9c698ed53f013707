"""Shell completion offers the registered names, without heavy imports."""

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


def words(line: str, folder: Path, shell: str = "bash") -> list[str]:
    """The completions of the last word of a line, requested as a shell does."""
    typed = line.split(" ")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_NAS_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(typed) - 1),
        "_TYPER_COMPLETE_ARGS": line,
    }
    done = subprocess.run(
        [sys.executable, "-c", START], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_run_names_with_shell_syntax_are_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("good", "$(touch bad)", "a;b", "`id`", "-x", "a b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.sqlite").touch()
    assert completion.runs() == ["latest", "good"]
