"""Text of syntax trees; unchanged statements keep their layout and comments."""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from itertools import pairwise

from nas.compiler.text import LINE


def _bare(node: ast.stmt) -> ast.stmt:
    """A statement without nested statements and decorators."""
    if not hasattr(node, "body"):
        return node
    bare = copy.copy(node)
    for name, value in (("body", [ast.Pass()]), ("orelse", []), ("decorator_list", [])):
        if hasattr(bare, name):
            setattr(bare, name, value)
    return bare


class StatementText:
    """The text of a definition; unchanged statements are copied from it."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines()
        nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))
        self.known = {self._place(node): ast.dump(_bare(node)) for node in nodes}

    def render(self, node: ast.stmt, level: int, word: str = "") -> list[str]:
        """The lines of a statement, with the comments above it; ``word`` is "el" for an elif."""
        pad = "    " * level
        lines = self._comments(node, pad)
        lines += [f"{pad}@{ast.unparse(item)}" for item in getattr(node, "decorator_list", [])]
        lines += self._head(node, pad, word)
        previous: ast.stmt | None = None
        for statement in getattr(node, "body", []):
            has_gap = isinstance(statement, ast.FunctionDef) or isinstance(node, ast.ClassDef)
            if previous is not None and has_gap:
                lines.append("")
            lines += self.render(statement, level + 1)
            previous = statement
        orelse = getattr(node, "orelse", [])
        if len(orelse) == 1 and isinstance(orelse[0], ast.If):
            return lines + self.render(orelse[0], level, "el")
        if orelse:
            lines.append(f"{pad}else:")
        return lines + [line for part in orelse for line in self.render(part, level + 1)]

    def _place(self, node: ast.stmt) -> tuple[int, int, type[ast.stmt]]:
        return getattr(node, "lineno", 0), getattr(node, "col_offset", 0), type(node)

    def _head(self, node: ast.stmt, pad: str, word: str) -> list[str]:
        """The lines of a simple statement, or of a compound statement up to its colon."""
        bare, first = _bare(node), getattr(node, "lineno", 0)
        if self.known.get(self._place(node)) == ast.dump(bare):
            stop = self._colon(first) if hasattr(node, "body") else node.end_lineno
            text = textwrap.dedent("\n".join(self.lines[first - 1 : stop]))
            return textwrap.indent(word + text.removeprefix("el"), pad).splitlines()
        text = ast.unparse(ast.fix_missing_locations(bare)).replace("** (-0.5)", "** -0.5")
        if '"' not in text:
            text = text.replace("'", '"')
        if isinstance(node, ast.FunctionDef):
            text = re.sub(r"(: [\w\[\], .|]+)=", r"\1 = ", text)
        elif isinstance(getattr(node, "value", None), ast.Tuple):  # without brackets
            text = re.sub(r"^(return|.* =) \((.*,.*)\)$", r"\1 \2", text)
        return _wrapped(word + text.removesuffix("    pass").rstrip(), pad)

    def _colon(self, first: int) -> int:
        """The last line of a compound statement's head."""
        for stop in range(first, len(self.lines) + 1):
            text = "\n".join(self.lines[first - 1 : stop])
            is_whole = all(text.count(a) == text.count(b) for a, b in ("()", "[]"))
            if is_whole and text.split("  #")[0].rstrip().endswith(":"):
                return stop
        raise AssertionError("a compound statement has a colon")

    def _comments(self, node: ast.stmt, pad: str) -> list[str]:
        first = getattr(node, "lineno", 1) - 1
        start = first
        while start > 0 and self.lines[start - 1].lstrip().startswith("#"):
            start -= 1
        return [pad + line.strip() for line in self.lines[start:first]]


def _wrapped(text: str, pad: str) -> list[str]:
    """A statement, broken at its first bracket if it is long."""
    if len(pad + text) <= LINE + 8 or "(" not in text:
        return [pad + text]
    start = text.index("(") + 1
    depth, commas, stop = 1, [], start
    while depth:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text[stop], 0)
        if depth == 1 and text[stop] == ",":
            commas.append(stop)
        stop += 1
    inner = f"{pad}    {text[start : stop - 1]}"
    lines = [inner]
    if len(inner) > LINE + 8:
        places = [start, *(comma + 1 for comma in commas), stop]
        lines = [f"{pad}    {text[i : j - 1].strip()}," for i, j in pairwise(places)]
    return [pad + text[:start], *lines, pad + text[stop - 1 :]]
