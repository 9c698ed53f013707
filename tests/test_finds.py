"""The exported finds of the documents: their files, and the script that trains with them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nas

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "finds"
TRAIN = FOLDER / "train.py"
FINDS = sorted(path for path in FOLDER.glob("*.py") if path != TRAIN)
EACH = pytest.mark.parametrize("path", FINDS, ids=lambda path: path.stem)


def lines_of_code(text: str) -> int:
    """The lines of a file without docstrings, comments and empty lines."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            docs |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    return sum(bool(line) and not line.startswith("#") and n not in docs for n, line in lines)


@EACH
def test_find_is_what_export_writes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    is_text, is_hybrid = (path.stem.startswith(kind) for kind in ("text_", "hybrid_"))
    genome = f"docs/genomes/{path.stem}.json"
    nas.export(genome, tmp_path / "find.py", dim=64, heads=4, causal=is_text or is_hybrid)
    assert path.read_text("utf-8") == (tmp_path / "find.py").read_text("utf-8")
    # A causal find can be decoded; the hybrid's file has the delta rule, and standard attention.
    limit = 390 if is_hybrid else 215 if is_text else 170
    assert lines_of_code(path.read_text("utf-8")) <= limit


@pytest.mark.parametrize(
    "path",
    [FINDS[1], *(pytest.param(p, marks=pytest.mark.slow) for p in (FINDS[0], *FINDS[2:]))],
    ids=lambda path: path.stem,
)
def test_script_trains_with_a_find(path: Path, tmp_path: Path) -> None:
    assert lines_of_code(TRAIN.read_text("utf-8")) <= 35
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 300)
    done = subprocess.run(
        [sys.executable, TRAIN, path, text, "100"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # more threads than idle cores take minutes
    )
    assert done.returncode == 0, done.stderr
    bits = float(done.stdout.removeprefix("step 100: ").removesuffix(" bits a byte\n"))
    assert bits < 3.5  # a uniform guess has 8, the frequencies of single letters 4.3
