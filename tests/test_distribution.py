"""Wheel and sdist: complete, valid, and usable in an empty folder without the checkout."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from nas.common import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
NAS = """
import sys
from nas.cli import main

for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as ended:
        assert not ended.code, line
"""
SEARCH = "search --space quickstart --gens 1 --pop 2 --backend local --run first"


def run(*command: object, **options: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    run(*command)
    return folder


def test_wheel_and_sdist_are_valid_and_complete(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name.startswith(DISTRIBUTION.replace("-", "_"))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = [p for p in (ROOT / "nas").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    assert {str(p.relative_to(ROOT)) for p in sources} <= names
    for folder in ("search_spaces", "validators"):
        assert {f"nas/_data/{folder}/{p.name}" for p in (ROOT / folder).glob("*.yaml")} <= names
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "nas/__init__.py", "tests/conftest.py"} <= inside
    assert not any(name.startswith((".venv", "site/", "runs/example")) for name in inside)


@pytest.mark.slow
def test_wheel_searches_reports_and_exports_in_an_empty_folder(built: Path, tmp_path: Path) -> None:
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    empty.mkdir()
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    environment = {"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    options = {"cwd": empty, "env": environment}
    where = run(sys.executable, "-c", "import nas; print(nas.__file__)", **options)
    assert Path(where.strip()).is_relative_to(installed)
    commands = (SEARCH, "report first -o run.html", "export first/best -o champion.py")
    run(sys.executable, "-c", NAS, *commands, **options)
    assert all((empty / name).stat().st_size for name in ("run.html", "champion.py"))
