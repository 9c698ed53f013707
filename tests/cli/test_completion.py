"""Shell completion offers the registered names, without heavy imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nas.cli import completion
from nas.common.config import named_files
from nas.genome.mechanisms import MECHANISMS
from nas.tasks.loading import built_in_tasks

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


def test_commands_and_members_are_completed_without_heavy_imports(recorded_run: Path) -> None:
    folder = recorded_run.parent.parent
    assert words("nas sh", folder) == ["show"]
    assert words("nas show example/", folder) == [f"example/{n}" for n in completion.MEMBERS]
    assert words("nas show q", folder) == ["qana"]
    offered = words("nas front e", folder, "zsh")
    assert offered[-1] == ':(("example"))\''


def test_completed_names_are_the_registered_ones(
    recorded_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded_run.parent.parent)
    assert completion.mechanisms() == sorted(MECHANISMS)
    assert completion.tasks() == built_in_tasks()
    assert completion.spaces() == named_files("search_spaces")
    assert completion.policies() == named_files("validators")
    assert completion.runs() == ["latest", "example"]
    assert completion.sources("example/k") == [f"example/{n}" for n in completion.MEMBERS]
    assert completion.sources("../other/k") == []
    monkeypatch.chdir(tmp_path)
    assert completion.runs() == []
    assert completion.sources("") == sorted(MECHANISMS)


def test_run_names_with_shell_syntax_are_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("good", "$(touch bad)", "a;b", "`id`", "-x", "a b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.sqlite").touch()
    assert completion.runs() == ["latest", "good"]


@pytest.mark.parametrize(
    ("shell", "path"),
    [
        ("bash", ".bash_completions/nas.sh"),
        ("zsh", ".zfunc/_nas"),
        ("fish", ".config/fish/completions/nas.fish"),
    ],
)
def test_install_and_show_completion(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, path: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    result = nas("--install-completion", shell)
    assert (result.status, result.out) == (0, "")
    assert result.err.startswith(f"{tmp_path / path}: completion for {shell}")
    shown = nas("--show-completion", shell).out
    assert (tmp_path / path).read_text().strip() == shown.strip()
    assert f"_NAS_COMPLETE=complete_{shell}" in shown


def test_unknown_shell_is_refused(nas: Any, tmp_path: Path) -> None:
    result = nas("--install-completion", "tcsh")
    assert result.status == 2
    assert "found 'tcsh'; expected one of bash, zsh, fish" in result.err
