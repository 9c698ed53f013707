"""Wheel and sdist are complete and valid; nas runs from them, and without packages it can spare."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from nas.common import DISTRIBUTION
from tests.cli.conftest import TINY

ROOT = Path(__file__).resolve().parents[1]
UNNEEDED = ("ray", "torchvision", "onnx", "transformers")  # to read runs and to train locally
NAS = """
import sys
for name in {absent}:
    sys.modules[name] = None  # an import fails, as if the package were not installed
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
    run(sys.executable, "-c", NAS.format(absent=()), *commands, **options)
    assert all((empty / name).stat().st_size for name in ("run.html", "champion.py"))


def test_a_slim_installation_reads_runs_and_trains_locally(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    example = ROOT / "runs" / "example"
    commands = (
        f"front {example} --json",
        f"show {example}/best --plot graph.svg",
        f"report {example} -o run.html",
        f"export {example}/best -o best.py",
        "evaluate mha --tasks tiny.yaml --seeds 1 --backend local",
    )
    run(sys.executable, "-c", NAS.format(absent=UNNEEDED), *commands, cwd=tmp_path)
