"""Write changed syntax trees as text; unchanged statements keep their layout and comments."""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from typing import Any, Final

from nas.compiler.text import wrapped

_BLOCKS: Final = (ast.FunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With)


class StatementWriter:
    """Writes the statements of a file whose syntax tree was changed in place.

    Args:
        text: the text that ``file`` was parsed from.
    """

    def __init__(self, text: str, file: ast.Module) -> None:
        self.lines = text.splitlines()
        simple = (n for n in ast.walk(file) if isinstance(n, ast.stmt) and not _is_block(n))
        self.original = {node: ast.dump(node) for node in simple}

    def lines_of(self, node: ast.stmt, level: int = 0) -> list[str]:
        """Return the source lines of the comments above a statement and of the statement.

        Args:
            level: how many times the lines are indented by four spaces.
        """
        pad, first = "    " * level, getattr(node, "lineno", 1) - 1
        start = first
        while start > 0 and self.lines[start - 1].lstrip().startswith("#"):
            start -= 1
        comments = [pad + line.strip() for line in self.lines[start:first]]
        if _is_block(node):
            return comments + self._block_lines(node, level)
        if self.original.get(node) == ast.dump(node):
            text = textwrap.dedent("\n".join(self.lines[first : node.end_lineno]))
            return comments + textwrap.indent(text, pad).splitlines()
        return comments + wrapped(unparsed(node), pad)

    def _block_lines(self, node: Any, level: int) -> list[str]:
        bare, orelse, pad = copy.copy(node), getattr(node, "orelse", []), "    " * level
        bare.body, bare.orelse = [ast.Pass()], []
        *decorators, head = unparsed(bare).removesuffix("pass").rstrip().splitlines()
        lines = [pad + line for line in decorators if line] + wrapped(head, pad)
        for index, statement in enumerate(node.body):
            is_apart = isinstance(node, ast.ClassDef) or isinstance(statement, ast.FunctionDef)
            lines += [""] if index and is_apart else []
            lines += self.lines_of(statement, level + 1)
        if len(orelse) == 1 and isinstance(orelse[0], ast.If):
            first, *others = self.lines_of(orelse[0], level)
            return [*lines, f"{pad}el{first.lstrip()}", *others]
        lines += [f"{pad}else:"] if orelse else []
        return lines + [
            line for statement in orelse for line in self.lines_of(statement, level + 1)
        ]


def _is_block(node: ast.stmt) -> bool:
    return isinstance(node, _BLOCKS)


def parsed(text: str) -> ast.expr:
    """Return the syntax tree of the expression that a text contains."""
    return ast.parse(text, mode="eval").body


def unparsed(node: ast.AST) -> str:
    """Return the text of an expression or statement in the formatter's style, on one line."""
    text = ast.unparse(ast.fix_missing_locations(node)).replace("** (-0.5)", "** -0.5")
    text = text if '"' in text else text.replace("'", '"')
    if isinstance(node, ast.FunctionDef):
        text = re.sub(r"(: [\w\[\], .|]+)=", r"\1 = ", text)
    if isinstance(getattr(node, "value", None), ast.Tuple):  # without brackets
        text = re.sub(r"^(return|.* =) \((.*,.*)\)$", r"\1 \2", text)
    return text
