"""No module imports itself through other modules, also not for annotations or in functions."""

from __future__ import annotations

import ast
from pathlib import Path

import networkx as nx

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
