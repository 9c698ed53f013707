"""Copy classes and functions of ours into a text that imports nothing but torch.

What is copied is their source, found by following the names that it uses; only decorators (the
registry's), jaxtyping's shapes (``Float[Tensor, "b h n w"]`` becomes ``Tensor``) and ``Any`` go.
A primitive without parameters whose ``forward`` is a few lines is written as these lines.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.text import LINE
from nas.errors import GenomeError
from nas.primitives.shapes import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nas.compiler.plan import Step

_SHAPED: Final = re.compile(r'\b(?:Float|Bool|Int|Shaped)\[Tensor, "[^"]*"\]')
_NAMED: Final = re.compile(rf"(?:(?<=: )|(?<=-> )|(?<=\[))(?:{'|'.join(PLAIN)})(?=[,):]| = )")
_UNTYPED: Final = re.compile(r"(?<=\w): Any(?=[,)])")
_SIGNATURE: Final = re.compile(r"^( *def \w+)\(\n([^()]*?)\n *\)( -> [^\n]*:)$", re.MULTILINE)
# Names that the written file imports from torch itself.
PROVIDED: Final = frozenset({"torch", "Tensor", "nn", "F"})


def inlined(roots: Iterable[Any], sources: Mapping[Any, str] | None = None) -> list[str]:
    """The sources of classes and functions and of all they use, each before its users.

    Args:
        sources: what stands in place of some of them.

    Raises:
        GenomeError: one of them uses something that is neither torch's nor a class, a function or
            a constant of its own package, or two have one name; a primitive must not.
    """
    known: dict[str, Any] = {}
    order: dict[str, str] = {}
    for root in roots:
        _visit(root, known, order, sources or {})
    return list(order.values())


def file_source(sources: list[str]) -> str:
    """The sources, after the imports of torch that they need."""
    imports = ["import torch", "from torch import Tensor, nn"]
    if any(re.search(r"\bF\.", source) for source in sources):
        imports.append("from torch.nn import functional as F")
    if any("torch.utils.checkpoint" in source for source in sources):
        imports.insert(1, "import torch.utils.checkpoint")
    return "\n\n".join(["\n".join(imports) + "\n", *sources])


def _visit(
    item: Any, known: dict[str, Any], order: dict[str, str], sources: Mapping[Any, str]
) -> None:
    name = item.__name__
    if name in known:
        if known[name] is not item:
            where = f"{known[name].__module__} and {item.__module__}"
            raise GenomeError(f"{where} both have a {name}; expected one name for one thing.")
        return
    known[name] = item
    source = sources.get(item) or source_of(item)
    scope = vars(sys.modules[item.__module__])
    package = item.__module__.split(".")[0]
    for used in _globals(source):
        if used in PROVIDED or used not in scope:
            continue
        found = scope[used]
        is_ours = getattr(found, "__module__", "").split(".")[0] in {"nas", package}
        if is_ours and (inspect.isclass(found) or inspect.isfunction(found)):
            _visit(found, known, order, sources)
        elif isinstance(found, bool | int | float | str | tuple | dict) and used.isupper():
            order[used] = f"{used} = {found!r}\n"
        else:
            raise GenomeError(
                f"{item.__module__}.{name} uses {used}, which cannot be written into a file; "
                "expected torch, and classes, functions and constants of its own package."
            )
    order[name] = source


@cache
def source_of(item: Any) -> str:
    """The source of a class or function, without decorators and shapes."""
    text = textwrap.dedent(inspect.getsource(item))
    tree = ast.parse(text).body[0]
    lines = text.splitlines()[tree.lineno - 1 :]  # a definition begins below its decorators
    plain = _NAMED.sub(lambda name: PLAIN[name[0]], _SHAPED.sub("Tensor", "\n".join(lines)))
    return _SIGNATURE.sub(_on_one_line, _UNTYPED.sub("", plain).rstrip() + "\n")


def _on_one_line(signature: re.Match[str]) -> str:
    """A signature that was broken for its shapes, where it is short without them."""
    inner = " ".join(signature[2].split()).removesuffix(",")
    line = f"{signature[1]}({inner}){signature[3]}"
    return line if len(line) <= LINE + 8 else signature[0]


@cache
def _globals(source: str) -> tuple[str, ...]:
    """Names that a source reads, annotations included."""
    tree = ast.parse(source)
    read = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return tuple(sorted(set(read)))


@dataclass(frozen=True)
class Lines:
    """A primitive's ``forward`` in terms of a step's operands.

    Attributes:
        lines: statements; the last one's value is the call's.
        roots: classes and functions of ours that they use.
        constants: attributes of the block that they read, with the texts that they are made from.
    """

    lines: list[str]
    roots: list[Any]
    constants: dict[str, str]


def written_out(
    step: Step, source: str, given: Mapping[str, str], sizes: Mapping[str, str], *, most: int = 3
) -> Lines | None:
    """A call of a primitive without parameters as a few lines; None where it is more than that.

    Args:
        source: of its class, for the step's parameters.
        given: texts of the operands and extras, by the names of ``forward``'s arguments.
        sizes: texts of the constructor's arguments, by name.
        most: how many lines.
    """
    module, index = step.primitive.module, step.index
    if step.primitive.is_parametric or not module.__bases__[0].__module__.startswith("torch."):
        return None
    tree = ast.parse(source).body[0]
    methods = {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    attributes = _attributes(methods.get("__init__"), sizes)
    if attributes is None:
        return None
    names = {name: ast.parse(text, mode="eval").body for name, text in given.items()}
    writer = _Writer(names, attributes, index)
    lines = _statements(writer, methods["forward"].body, step.variable)
    if lines is None or writer.is_method_called:
        return None
    if len(lines) > most or max(map(len, lines)) > LINE:
        return None
    scope = vars(sys.modules[module.__module__])
    used = sorted({name for line in lines for name in _globals(line)} - PROVIDED)
    return Lines(lines, [scope[name] for name in used if name in scope], writer.constants)


def _statements(writer: _Writer, body: list[ast.stmt], target: str) -> list[str] | None:
    """Assignments and a return; None for anything else."""
    lines: list[str] = []
    for statement in body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            return [*lines, f"{target} = {_text(writer.visit(statement.value))}"]
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            value = writer.visit(statement.value)
            own = ast.parse(f"{name}_{writer.index}", mode="eval").body
            writer.names = {**writer.names, name: own}
            lines.append(f"{name}_{writer.index} = {_text(value)}")
        else:
            return None
    return None


def _text(node: ast.AST) -> str:
    return ast.unparse(node).replace("** (-0.5)", "** -0.5")


def _attributes(
    init: ast.FunctionDef | None, sizes: Mapping[str, str]
) -> dict[str, ast.expr] | None:
    """What a constructor that only keeps its arguments makes of them; None for another one."""
    found: dict[str, ast.expr] = {}
    known = {name: ast.parse(text, mode="eval").body for name, text in sizes.items()}
    for line in [] if init is None else init.body:
        if isinstance(line, ast.Expr) and "super()" in ast.unparse(line):
            continue
        pairs = list(assigned(line)) if isinstance(line, ast.Assign) else []
        if not pairs:
            return None
        for name, value in pairs:
            if value is None:
                return None
            found[name] = _Writer(known, {}, 0).visit(value)
    return found


def assigned(statement: ast.Assign) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes that a statement sets, and to what; None for a part of a value."""
    for target in statement.targets:
        targets: list[ast.expr] = [target]
        values: list[ast.expr | None] = [statement.value]
        if isinstance(target, ast.Tuple):
            whole = statement.value
            targets = target.elts
            values = [*whole.elts] if isinstance(whole, ast.Tuple) else [None] * len(targets)
        for one, value in zip(targets, values, strict=True):
            if isinstance(one, ast.Attribute):
                yield one.attr, value


class _Writer(ast.NodeTransformer):
    """Puts texts in place of arguments, and constants of the block in place of a module's."""

    def __init__(
        self, names: Mapping[str, ast.expr], attributes: Mapping[str, ast.expr], index: int
    ) -> None:
        self.names, self.attributes, self.index = names, attributes, index
        self.constants: dict[str, str] = {}
        self.is_method_called = False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """An argument."""
        return self.names.get(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """``self.something``."""
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not is_own:
            return self.generic_visit(node)
        if node.attr not in self.attributes:
            self.is_method_called = True
            return node
        found = self.attributes[node.attr]
        if isinstance(found, ast.Constant):
            return found
        name = f"{node.attr}_{self.index}"
        self.constants[name] = _text(found)
        return ast.parse(f"self.{name}", mode="eval").body
