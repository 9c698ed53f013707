"""Write the tree of nas/ into docs/architecture.md: one line a file, from its docstring.

python -m tests.docs.architecture
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs" / "architecture.md"
BEGIN: Final = "<!-- tree: made by python -m tests.docs.architecture -->\n"
END: Final = "<!-- end of tree -->\n"
WIDTH: Final = 36


def about(file: Path) -> str:
    """The first sentence of a module's docstring, on one line, without its full stop."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert text, f"{file} has no docstring"
    return " ".join(text.split("\n\n", 1)[0].split()).removesuffix(".")


def tree(package: Path, depth: int = 0) -> list[str]:
    """Modules, then packages with what is in them; a package's line is its ``__init__``'s."""
    lines = []
    for path in sorted(package.iterdir(), key=lambda p: (p.is_dir(), p.name)):
        indent = "  " * depth
        if path.is_dir() and (path / "__init__.py").exists():
            lines.append(f"{f'{indent}{path.name}/':<{WIDTH}} {about(path / '__init__.py')}")
            lines += tree(path, depth + 1)
        elif path.suffix == ".py" and path.name != "__init__.py":
            lines.append(f"{f'{indent}{path.name}':<{WIDTH}} {about(path)}")
    return lines


def page() -> str:
    """The page as it should be."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    made = "\n".join(["```text", *tree(ROOT / "nas"), "```"])
    return f"{before}{BEGIN}{made}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
