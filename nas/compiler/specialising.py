"""Leave out of a primitive's class what its parameters never reach, so that people read the rest.

Branches on parameters that are known are taken or left out, line by line, so that comments stay;
then the constructor's arguments that nothing reads, and what a docstring says of arguments.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.inlining import assigned, source_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nas.genome import ParamValue

_UNKNOWN: Final = object()
_NOT_FOR_READERS: Final = ("Args:", "Raises:", "MACs ")


def specialised(module: Any, params: Mapping[str, ParamValue]) -> tuple[str, frozenset[str]]:
    """The source of a class for these parameters, and those that its constructor still takes."""
    source = source_of(module)
    lines: list[str | None] = list(source.splitlines())
    tree = _parsed(lines)
    methods = _methods(tree)
    _shorten(lines, tree)
    if "__init__" in methods:
        known = _Known(dict(params), {})
        _prune(lines, methods["__init__"].body, known)
        found = _attributes(methods["__init__"].body, known)
        known = _Known({}, {k: value for k, value in found.items() if value is not _UNKNOWN})
        for name, method in methods.items():
            if name != "__init__":
                _prune(lines, method.body, known)
        _drop_unread(lines, known)
    kept = frozenset(params) - _without_unread(lines, params)
    return "\n".join(line for line in lines if line is not None) + "\n", kept


def _parsed(lines: list[str | None]) -> ast.ClassDef:
    """The class that is left; its line numbers are those of all lines."""
    (found,) = ast.parse("\n".join(line or "" for line in lines)).body
    assert isinstance(found, ast.ClassDef), "a primitive's module is a class"
    return found


def _methods(tree: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}


def _shorten(lines: list[str | None], tree: ast.ClassDef) -> None:
    """Leave out the docstring's paragraphs on arguments."""
    first = tree.body[0]
    if not isinstance(first, ast.Expr) or first.end_lineno is None:
        return
    source = [line or "" for line in lines]
    start, stop, is_out = first.lineno, first.end_lineno - 1, False
    for number in range(start, stop):
        text = source[number].strip()
        if not source[number - 1].strip():
            is_out = text.startswith(_NOT_FOR_READERS)
        if is_out:
            lines[number] = None
    while stop > start and not (lines[stop - 1] or "").strip():
        lines[stop - 1], stop = None, stop - 1


@dataclass(frozen=True)
class _Known:
    """Values of names and of attributes of ``self``, as far as parameters say them."""

    names: dict[str, Any]
    attributes: dict[str, Any]

    def value(self, node: ast.expr) -> Any:
        """What an expression is, or ``_UNKNOWN``."""
        if isinstance(node, ast.BoolOp):
            decisive = isinstance(node.op, ast.Or)
            found = [self.value(part) for part in node.values]
            if any(part is not _UNKNOWN and bool(part) == decisive for part in found):
                return decisive
        scope = {"__builtins__": {}, **self.names, "self": SimpleNamespace(**self.attributes)}
        try:
            return eval(compile(ast.Expression(node), "", "eval"), scope)  # noqa: S307 - our own
        except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError):
            return _UNKNOWN


def _prune(lines: list[str | None], body: list[ast.stmt], known: _Known) -> None:
    """Take or leave the branches of a body whose tests are known."""
    for statement in body:
        if not isinstance(statement, ast.If):
            continue
        taken = _taken(statement, known)
        if taken is None:
            _prune(lines, statement.body, known)
            _prune(lines, statement.orelse, known)
            continue
        whole = set(range(statement.lineno - 1, statement.end_lineno or 0))
        kept = set(range(taken[0].lineno - 1, taken[-1].end_lineno or 0)) if taken else set()
        for index in whole:
            line = lines[index]
            lines[index] = line[4:] if index in kept and line else None
        _prune(lines, taken, known)
        if taken and isinstance(taken[-1], ast.Return | ast.Raise):
            end = body[-1].end_lineno or 0
            lines[statement.end_lineno or 0 : end] = [None] * (end - (statement.end_lineno or 0))
            return


def _taken(statement: ast.If, known: _Known) -> list[ast.stmt] | None:
    """The branch that runs; None where nobody knows."""
    test = known.value(statement.test)
    is_elif = any(
        isinstance(s, ast.If) and s.col_offset == statement.col_offset for s in statement.orelse
    )
    if test is _UNKNOWN or is_elif:
        return None
    return statement.body if test else statement.orelse


def _attributes(body: list[ast.stmt], known: _Known) -> dict[str, Any]:
    """The attributes that a constructor sets, with their values or ``_UNKNOWN``."""
    found: dict[str, Any] = {}
    for statement in body:
        if isinstance(statement, ast.If) and (taken := _taken(statement, known)) is not None:
            found |= _attributes(taken, known)
        elif isinstance(statement, ast.Assign):
            for name, value in assigned(statement):
                found[name] = _UNKNOWN if value is None else known.value(value)
        else:
            found |= dict.fromkeys(_attributes_in(statement, ast.Store), _UNKNOWN)
    return found


def _attributes_in(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The attributes that are read (``ast.Load``) or set."""
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute))
    return {n.attr for n in found if isinstance(n.ctx, context)}


def _drop_unread(lines: list[str | None], known: _Known) -> None:
    """Leave out methods that nothing calls, then known attributes that nothing reads."""
    for name, method in _methods(_parsed(lines)).items():
        if name not in {"__init__", "forward", *_attributes_in(_parsed(lines), ast.Load)}:
            start, stop = method.lineno - 1, method.end_lineno or 0
            lines[start - 1 : stop] = [None] * (stop - start + 1)
    tree = _parsed(lines)
    spare = known.attributes.keys() - _attributes_in(tree, ast.Load)
    for line in _methods(tree)["__init__"].body:
        names = {name for name, _ in assigned(line)} if isinstance(line, ast.Assign) else set()
        if names and names <= spare:
            lines[line.lineno - 1 : line.end_lineno] = [None]


def _without_unread(lines: list[str | None], params: Mapping[str, ParamValue]) -> set[str]:
    """Leave out the constructor's arguments that nothing reads, where each has a line."""
    init = _methods(_parsed(lines)).get("__init__")
    if init is None:
        return set()
    read = {n.id for line in init.body for n in ast.walk(line) if isinstance(n, ast.Name)}
    unread = set()
    for argument in init.args.kwonlyargs:
        line = (lines[argument.lineno - 1] or "").strip()
        if argument.arg in params and argument.arg not in read and line.startswith(argument.arg):
            lines[argument.lineno - 1] = None
            unread.add(argument.arg)
    if init.args.kwonlyargs and len(unread) == len(init.args.kwonlyargs):
        star = init.args.kwonlyargs[0].lineno - 2
        lines[star] = None if (lines[star] or "").strip() == "*," else lines[star]
    return unread
