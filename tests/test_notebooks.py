"""The notebooks of the documents run from beginning to end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
# Not in this process, in which nbclient would leave an event loop that disturbs playwright.
PROGRAM = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()
print(sum(bool(cell.get("outputs")) for cell in notebook.cells))
"""


@pytest.mark.slow
@EACH
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 3
