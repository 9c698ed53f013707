"""Text of Python files: statements, and copies of definitions in a file that imports only torch."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, Final

from torch import nn

from nas.common.errors import GenomeError
from nas.genome.primitives.base import CLASS_FLAGS
from nas.genome.primitives.tensors import PLAIN

LINE: Final = 100  # most characters of a line
_SHAPED: Final = re.compile(r'\b(?:Float|Bool|Int|Shaped)\[Tensor, "[^"]*"\]')
_NAMED: Final = re.compile(
    rf"(?:(?<=: )|(?<=-> )|(?<=\[)|(?<=, )(?=[\w, ]+\]))(?:{'|'.join(PLAIN)})(?=[,):\]\n]| = | \| )"
)
_UNTYPED: Final = re.compile(r"(?<=\w): Any(?=[,)])")
_SIGNATURE: Final = re.compile(r"^( *def \w+)\(\n([^()]*?)\n *\)( -> [^\n]*:)$", re.MULTILINE)
_DECLARATION: Final = re.compile(rf"^    (?:{'|'.join(CLASS_FLAGS)}) = \w+\n\n?", re.MULTILINE)
_CONSTANTS: Final = (bool, int, float, str, tuple, dict)
# Names that the written file imports where it uses them, by module.
_IMPORTS: Final = {
    "collections.abc": ("Callable", "Sequence"),
    "functools": ("cache", "lru_cache"),
    "torch.nn.attention.flex_attention": (
        *("AuxOutput", "AuxRequest", "BlockMask", "create_block_mask", "flex_attention"),
    ),
    "torch.nn.functional": ("scaled_dot_product_attention",),
}
PROVIDED: Final = frozenset({"torch", "Tensor", "nn", "F"}).union(*_IMPORTS.values())


def inlined(roots: Iterable[Any]) -> list[str]:
    """Return the sources of classes and functions, each after the definitions that it uses.

    Raises:
        GenomeError: a source uses another package than torch, nas and its own, or names clash.
    """
    visited: dict[str, tuple[Any, str]] = {}
    order: dict[str, str] = {}
    for root in roots:
        if root.__name__ not in PROVIDED:
            _visit(root.__name__, root, root.__module__, visited, order)
    return list(order.values())


def file_source(sources: list[str]) -> str:
    """Return the text of a file: imports of torch, then the sources."""
    text = "\n".join(sources)
    imports = ["import torch", "from torch import Tensor, nn"]
    if re.search(r"\bF[.,]", text):
        imports.append("from torch.nn import functional as F")
    standard: list[str] = []
    for module, names in _IMPORTS.items():
        before = "@" if module == "functools" else r"(?<![.\w])"  # decorators
        used = [name for name in names if re.search(rf"{before}{name}\b", text)]
        if used:
            lines = imports if module.startswith("torch") else standard
            line = f"from {module} import {', '.join(used)}"
            lines.append(line if len(line) <= LINE else f"from {module} import ({', '.join(used)})")
    imports = indented([*standard, *([""] if standard else []), *imports], 0)
    return "\n\n".join(["\n".join(imports) + "\n", *sources])


def _visit(
    name: str, item: Any, module: str, visited: dict[str, tuple[Any, str]], order: dict[str, str]
) -> None:
    if name in visited:
        known, where = visited[name]
        if known != item:
            raise GenomeError(
                f"{where} and {module} both have a {name}; expected one name for one thing."
            )
        return
    visited[name] = item, module
    if isinstance(item, _CONSTANTS):
        order[name] = f"{name} = {item!r}\n"
        return
    source = source_of(item)
    scope = vars(sys.modules[module])
    for used in globals_of(source):
        if used in PROVIDED or used not in scope:
            continue
        value = scope[used]
        owner = getattr(value, "__module__", module)
        is_ours = owner.split(".")[0] in {"nas", module.split(".")[0]}
        is_defined = inspect.isclass(value) or inspect.isfunction(inspect.unwrap(value))
        is_constant = isinstance(value, _CONSTANTS) and used.isupper()
        if not is_constant and not (is_ours and is_defined and value.__name__ == used):
            raise GenomeError(
                f"{module}.{name} uses {used}, which cannot be written into a file; "
                "expected torch, and classes, functions and constants of its own package."
            )
        _visit(used, value, owner, visited, order)
    order[name] = source


@cache
def source_of(item: Any) -> str:
    """Return the source of a class or function without decorators, except those of caches.

    Annotations ``Any`` are removed, and those of shapes become ``Tensor``.
    """
    text = textwrap.dedent(inspect.getsource(item))
    tree = ast.parse(text).body[0]
    lines = text.splitlines()
    caches = [
        line for line in lines[: tree.lineno - 1] if line.startswith(("@cache", "@lru_cache"))
    ]
    # A definition begins below its decorators.
    bare = _DECLARATION.sub("", "\n".join([*caches, *lines[tree.lineno - 1 :]]))
    plain = _NAMED.sub(lambda name: PLAIN[name[0]], _SHAPED.sub("Tensor", bare))
    return _SIGNATURE.sub(_on_one_line, _UNTYPED.sub("", plain).rstrip() + "\n")


def _on_one_line(signature: re.Match[str]) -> str:
    inner = " ".join(signature[2].split()).removesuffix(",")
    line = f"{signature[1]}({inner}){signature[3]}"
    return line if len(line) <= LINE else signature[0]


@cache
def globals_of(source: str) -> tuple[str, ...]:
    """Return the names of all variables that a source reads, in alphabetical order."""
    tree = ast.parse(source)
    read = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return tuple(sorted(set(read)))


def returned(module: Any) -> ast.expr | None:
    """Return the expression of a class that has only a method ``forward``, with only a return."""
    if module.__bases__ != (nn.Module,):
        return None
    match ast.parse(source_of(module)).body:
        case [ast.ClassDef(body=[_, ast.FunctionDef(body=[ast.Return(ast.expr() as value)])])]:
            return value
    return None


def renamed(value: ast.expr, texts: Mapping[str, str]) -> str:
    """Return the text of an expression with other expressions in place of its variables."""
    return ast.unparse(_Renamed(texts).visit(value))


class _Renamed(ast.NodeTransformer):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self.expressions = {name: ast.parse(text, mode="eval").body for name, text in texts.items()}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.expressions.get(node.id, node)


def call_line(target: str, function: str, arguments: list[str]) -> str:
    """Return the statement that assigns the result of a call to ``target``."""
    return f"{target} = {function}({', '.join(arguments)})"


def indented(lines: list[str], levels: int = 1) -> list[str]:
    """Return indented lines of source; long lines are broken inside their first brackets."""
    return [part for line in lines for part in wrapped(line, "    " * levels)]


def wrapped(text: str, pad: str) -> list[str]:
    """Return a statement, indented by ``pad`` and broken inside its first brackets if long."""
    text, pad = text.lstrip(), pad + " " * (len(text) - len(text.lstrip()))
    if len(pad + text) <= LINE or "(" not in text:
        return [(pad + text).rstrip()]
    start = text.index("(") + 1
    depths = list(accumulate((sign in "([{") - (sign in ")]}") for sign in text))
    stop = depths.index(0, start)
    commas = [i for i in range(start, stop) if text[i] == "," and depths[i] == 1]
    parts = [text[i + 1 : j].strip() for i, j in pairwise([start - 1, *commas, stop])]
    inner = f"{pad}    {', '.join(parts)}"
    lines = [inner] if len(inner) <= LINE else []
    for part in () if lines else parts:
        lines += wrapped(f"{part},", f"{pad}    ")
    return [pad + text[:start], *lines, pad + text[stop:]]
