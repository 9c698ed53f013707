"""Write the tree of nas/ into docs/architecture.md: one line per file, from its docstring.

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


def tree(package: Path, depth: int = 0) -> list[str]:
    """Return a line for each module, then a line for each package followed by its own tree."""
    lines = []
    for path in sorted(package.iterdir(), key=lambda p: (p.is_dir(), p.name)):
        indent = "  " * depth
        if path.is_dir() and (path / "__init__.py").exists():
            lines.append(f"{f'{indent}{path.name}/':<{WIDTH}} {_summary(path / '__init__.py')}")
            lines += tree(path, depth + 1)
        elif path.suffix == ".py" and path.name != "__init__.py":
            lines.append(f"{f'{indent}{path.name}':<{WIDTH}} {_summary(path)}")
    return lines


def page() -> str:
    """Return docs/architecture.md with the tree of today's files."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    listing = "\n".join(["```text", *tree(ROOT / "nas"), "```"])
    return f"{before}{BEGIN}{listing}\n{END}{rest.split(END)[1]}"


def _summary(file: Path) -> str:
    """Return the first paragraph of a module's docstring on one line, without its full stop."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert text, f"{file} has no docstring"
    return " ".join(text.split("\n\n", 1)[0].split()).removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
