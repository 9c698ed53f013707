"""No module imports itself by a detour: annotations' imports and late ones included."""

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
    """The modules of ours that a file imports, at whatever place in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # A name that is no module is taken from the package's own file.
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in FILES else node.module)
    return {name for name in found if name in FILES and name != module}


def test_no_circle_of_imports() -> None:
    graph = nx.DiGraph(
        [(module, other) for module, path in FILES.items() for other in imported(module, path)]
    )
    circles = [sorted(found) for found in nx.strongly_connected_components(graph) if len(found) > 1]
    assert not circles
