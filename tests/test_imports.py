"""No module imports itself through others, and reading a run needs few packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import networkx as nx

from tests.cli.conftest import TINY

UNNEEDED = ("ray", "torchvision", "onnx", "transformers")
WITHOUT = f"""
import sys

for name in {UNNEEDED}:
    sys.modules[name] = None  # an import fails, as if the package were not installed
from nas.cli import main

for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as ended:
        assert not ended.code, line
"""
ROOT = Path(__file__).resolve().parent.parent
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "nas").rglob("*.py"))
}


def imported(module: str, path: Path) -> set[str]:
    """The modules of nas that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # A name that is no module is taken from the package's own file.
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                names.add(whole if whole in FILES else node.module)
    return {name for name in names if name in FILES and name != module}


def test_no_circle_of_imports() -> None:
    graph = nx.DiGraph(
        [(module, other) for module, path in FILES.items() for other in imported(module, path)]
    )
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles


def test_a_slim_installation_reads_runs_and_trains_locally(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    run = ROOT / "runs" / "example"
    commands = (
        f"front {run} --csv front.csv",
        f"show {run}/best --plot graph.svg",
        f"report {run} -o run.html",
        f"export {run}/best -o best.py",
        "evaluate mha --tasks tiny.yaml --seeds 1 --backend local",
    )
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *commands], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
