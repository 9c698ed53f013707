"""Leave out of a primitive's class what its parameters never reach, so that people read the rest.

Branches on parameters that are known are taken or left out, line by line, so that comments stay;
then the constructor's arguments that nothing reads, and what a docstring says of arguments.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.inlining import source_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from nas.genome import ParamValue

_UNKNOWN: Final = object()
_NOT_FOR_READERS: Final = ("Args:", "Raises:", "MACs ")


def specialised(
    module: type[nn.Module], params: Mapping[str, ParamValue]
) -> tuple[str, frozenset[str]]:
    """The source of a class for these parameters, and those that its constructor still takes."""
    source = source_of(module)
    tree = _class(source)
    methods = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    lines: list[str | None] = list(source.splitlines())
    _shorten(lines, tree)
    if "__init__" in methods:
        known = _Known(dict(params), {})
        _prune(lines, methods["__init__"].body, known)
        known = _Known({}, _attributes(methods["__init__"].body, known))
        for name, method in methods.items():
            if name != "__init__":
                _prune(lines, method.body, known)
        _drop_unread(lines, known)
    kept = frozenset(params) - _without_unread(lines, params)
    return "\n".join(line for line in lines if line is not None) + "\n", kept


def _class(source: str) -> ast.ClassDef:
    (found,) = ast.parse(source).body
    if not isinstance(found, ast.ClassDef):
        raise TypeError("expected the source of a class")
    return found


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


class _Known:
    """Values of names and of attributes of ``self``, as far as parameters say them."""

    def __init__(self, names: dict[str, Any], attributes: dict[str, Any]) -> None:
        self.names, self.attributes = names, attributes

    def value(self, node: ast.expr) -> Any:
        """What an expression is, or ``_UNKNOWN``."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.names.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            return self.attributes.get(node.attr, _UNKNOWN)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found = self.value(node.operand)
            return found if found is _UNKNOWN else not found
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(node)
        if isinstance(node, ast.IfExp):
            test = self.value(node.test)
            return test if test is _UNKNOWN else self.value(node.body if test else node.orelse)
        return self._compared(node) if isinstance(node, ast.Compare) else _UNKNOWN

    def _all_or_any(self, node: ast.BoolOp) -> Any:
        found = [self.value(part) for part in node.values]
        decisive = isinstance(node.op, ast.Or)
        if any(part is not _UNKNOWN and bool(part) == decisive for part in found):
            return decisive
        return _UNKNOWN if any(part is _UNKNOWN for part in found) else not decisive

    def _compared(self, node: ast.Compare) -> Any:
        left, right = self.value(node.left), self.value(node.comparators[0])
        if len(node.ops) > 1 or left is _UNKNOWN or right is _UNKNOWN:
            return _UNKNOWN
        is_equal = left == right and (left is None) == (right is None)
        if isinstance(node.ops[0], ast.Eq | ast.Is):
            return is_equal
        return not is_equal if isinstance(node.ops[0], ast.NotEq | ast.IsNot) else _UNKNOWN


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
    """The attributes that a constructor sets to values that are known."""
    found: dict[str, Any] = {}
    for statement in body:
        if isinstance(statement, ast.If):
            taken = _taken(statement, known)
            branches = [statement.body, statement.orelse] if taken is None else [taken]
            for branch in branches:
                inner = _attributes(branch, known)
                unsure = taken is None
                found |= dict.fromkeys(inner, _UNKNOWN) if unsure else inner
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                found |= _assigned(target, statement.value, known)
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            found |= _assigned(statement.target, ast.Name("", ast.Load()), known)
    return found


def _assigned(target: ast.expr, value: ast.expr, known: _Known) -> dict[str, Any]:
    if isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else [ast.Name("")] * len(target.elts)
        pairs = zip(target.elts, values, strict=True)
        return {k: v for t, own in pairs for k, v in _assigned(t, own, known).items()}
    if isinstance(target, ast.Attribute):
        return {target.attr: known.value(value)}
    return {}


def _drop_unread(lines: list[str | None], known: _Known) -> None:
    """Leave out methods that nothing calls, then known attributes that nothing reads."""
    tree = _class("\n".join(line or "" for line in lines))
    methods = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    for name, method in methods.items():
        if name not in {"__init__", "forward", *_attributes_read(lines)}:
            start, stop = method.lineno - 1, method.end_lineno or 0
            lines[start - 1 : stop] = [None] * (stop - start + 1)
    read = _attributes_read(lines)
    for line in methods["__init__"].body:
        targets = line.targets if isinstance(line, ast.Assign) else []
        names = [t.attr for t in targets if isinstance(t, ast.Attribute)]
        is_known = all(known.attributes.get(name, _UNKNOWN) is not _UNKNOWN for name in names)
        if names and len(names) == len(targets) and is_known and not read & set(names):
            lines[line.lineno - 1 : line.end_lineno] = [None]


def _attributes_read(lines: list[str | None]) -> set[str]:
    tree = ast.walk(_class("\n".join(line or "" for line in lines)))
    return {n.attr for n in tree if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}


def _without_unread(lines: list[str | None], params: Mapping[str, ParamValue]) -> set[str]:
    """Leave out the constructor's arguments that nothing reads, where each has a line."""
    tree = _class("\n".join(line or "" for line in lines))
    init = next(
        (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
    )
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
