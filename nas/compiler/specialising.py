"""Specialise plain source: remove the options that a mechanism does not use.

A file holds all code of a mechanism, so that every call is known. An option (a string, a flag or
None) with the same value in all calls is replaced by this value; branches on it are folded, and
unused code is removed.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from nas.compiler.statements import StatementText

_NOT_FOR_READERS: Final = re.compile(r'\n\n    (?:Args:|Raises:|MACs ).*(?:\n(?! *""").+)*')
_MOST_PASSES: Final = 20
_Function: TypeAlias = ast.FunctionDef


@lru_cache(maxsize=1024)  # the sources of a report share most primitives
def specialise(
    sources: tuple[str, ...], roots: tuple[str, ...] = ("Attention",)
) -> tuple[str, ...]:
    """The definitions of a file without unused options and definitions.

    Args:
        sources: one class, function or assignment each, definitions before their users.
        roots: names of the definitions to keep, with their dependencies.
    """
    sources = tuple(
        _NOT_FOR_READERS.sub("", source) if source.startswith("class") else source
        for source in sources
    )
    nodes: list[ast.stmt] = [ast.parse(source).body[0] for source in sources]
    texts = {id(node): StatementText(source) for node, source in zip(nodes, sources, strict=True)}
    file, before = ast.Module(nodes, []), ""
    for _ in range(_MOST_PASSES):
        if (dump := ast.dump(file)) == before:
            break
        before = dump
        _replace_options(file)
        for node in file.body:
            if isinstance(node, ast.ClassDef) and node.name not in roots:
                _replace_attributes(node, file)
            for function in functions_in(node):
                _replace_locals(function)
        file.body = [cast("ast.stmt", _Folder().visit(node)) for node in file.body]
        _inline_expressions(file)
        _remove_unused(file, roots)
    return tuple("\n".join(texts[id(node)].render(node, 0)) + "\n" for node in file.body)


def functions_in(node: ast.AST) -> list[_Function]:
    """All functions and methods in a syntax tree."""
    return [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]


def _loads(tree: ast.AST) -> Counter[str]:
    """How often each variable is read."""
    names = (n for n in ast.walk(tree) if isinstance(n, ast.Name))
    return Counter(n.id for n in names if isinstance(n.ctx, ast.Load))


def _attributes(tree: ast.AST, context: type[ast.expr_context]) -> Counter[str]:
    """How often each attribute is read (``ast.Load``) or set."""
    nodes = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute))
    return Counter(n.attr for n in nodes if isinstance(n.ctx, context))


def _is_option(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and (
        node.value is None or type(node.value) in (str, bool)
    )


def _is_pure(node: ast.expr) -> bool:
    return not any(isinstance(n, ast.Call) for n in ast.walk(node))


class _Substitution(ast.NodeTransformer):
    """Replaces variables and attributes of ``self`` by expressions."""

    def __init__(self, names: Mapping[str, ast.expr], attributes: Mapping[str, ast.expr]) -> None:
        self.names, self.attributes = names, attributes

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a variable that is read."""
        return self.names.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace an attribute of ``self`` that is read."""
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if is_own and isinstance(node.ctx, ast.Load) and node.attr in self.attributes:
            return self.attributes[node.attr]
        return self.generic_visit(node)


# Options and arguments.


def _replace_options(file: ast.Module) -> None:
    """Inline a parameter that has the same constant in all calls; drop unused parameters."""
    for function, calls, skipped in _callables(file):
        arguments = function.args
        names = [a.arg for a in arguments.args[skipped:]]
        read = _loads(ast.Module(function.body, []))
        stored = {n.id for n in _stored(function) if isinstance(n, ast.Name)}
        for name in [*names, *(a.arg for a in arguments.kwonlyargs)]:
            exprs = [_given(call, name, function, skipped) for call in calls]
            if not calls or any(expr is _UNCLEAR for expr in exprs):
                continue
            values = [cast("ast.expr | None", expr) or _default(function, name) for expr in exprs]
            if all(map(_is_option, values)) and len({ast.dump(v) for v in values if v}) == 1:
                if name in stored:
                    continue
                _substitute(function, {name: cast("ast.expr", values[0])})
            elif read[name] or not all(value is not None and _is_pure(value) for value in values):
                continue
            for call in calls:
                _drop_given(call, name, function, skipped)
            _drop_argument(function, name)


def _stored(function: _Function) -> Iterator[ast.AST]:
    return (n for n in ast.walk(function) if isinstance(getattr(n, "ctx", None), ast.Store))


def _substitute(function: _Function, names: Mapping[str, ast.expr]) -> None:
    function.body = [_Substitution(names, {}).visit(statement) for statement in function.body]


def _callables(file: ast.Module) -> Iterator[tuple[_Function, list[ast.Call], int]]:
    """Functions with their calls, if all are known, and 1 for methods (``self``), else 0."""
    calls = [n for n in ast.walk(file) if isinstance(n, ast.Call)]
    loads, attributes = _loads(file), _attributes(file, ast.Load)
    for node in file.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            uses = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == node.name]
            methods = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
            if len(uses) == loads[node.name] and isinstance(node, ast.FunctionDef):
                yield node, uses, 0
            elif len(uses) == loads[node.name] and "__init__" in methods:
                yield methods["__init__"], uses, 1
            inner = [n for n in ast.walk(node) if isinstance(n, ast.Call)] if methods else []
            for name, method in methods.items():
                uses = [
                    c for c in inner if isinstance(c.func, ast.Attribute) and c.func.attr == name
                ]
                if not name.startswith("__") and uses and len(uses) == attributes[name]:
                    yield method, uses, 1


_UNCLEAR: Final = object()


def _given(call: ast.Call, name: str, function: _Function, skipped: int) -> object:
    """The expression of an argument in a call; None without one, ``_UNCLEAR`` if unknown."""
    for keyword in call.keywords:
        if keyword.arg in (name, None):
            return keyword.value if keyword.arg else _UNCLEAR
    place = _place(call, name, function, skipped)
    return place if place is None or place is _UNCLEAR else call.args[cast("int", place)]


def _place(call: ast.Call, name: str, function: _Function, skipped: int) -> object:
    names = [a.arg for a in function.args.args[skipped:]]
    if name not in names:
        return None
    index, stars = names.index(name), [isinstance(a, ast.Starred) for a in call.args]
    if not any(stars):
        return index if index < len(call.args) else None
    # After a starred argument, positions count from the end, if no argument has a default.
    back, is_full = index - len(names), not function.args.defaults and not call.keywords
    is_clear = is_full and -back <= len(stars) and not any(stars[back:])
    return len(stars) + back if is_clear else _UNCLEAR


def _default(function: _Function, name: str) -> ast.expr | None:
    arguments = function.args
    pairs = dict(
        zip(reversed([a.arg for a in arguments.args]), reversed(arguments.defaults), strict=False)
    )
    keywords = zip((a.arg for a in arguments.kwonlyargs), arguments.kw_defaults, strict=True)
    return (pairs | dict(keywords)).get(name)


def _drop_given(call: ast.Call, name: str, function: _Function, skipped: int) -> None:
    keywords = [keyword for keyword in call.keywords if keyword.arg != name]
    place = _place(call, name, function, skipped) if len(keywords) == len(call.keywords) else None
    call.keywords = keywords
    if place is not None:
        del call.args[cast("int", place)]


def _drop_argument(function: _Function, name: str) -> None:
    arguments = function.args
    for index, argument in enumerate(arguments.args):
        if argument.arg == name:
            back = index - len(arguments.args)
            if -back <= len(arguments.defaults):
                del arguments.defaults[back]
            del arguments.args[index]
            return
    index = [a.arg for a in arguments.kwonlyargs].index(name)
    del arguments.kwonlyargs[index], arguments.kw_defaults[index]


def _inline_expressions(file: ast.Module) -> None:
    """Replace calls of functions that only call a torch function of their one argument."""
    for function in file.body:
        if not isinstance(function, ast.FunctionDef) or len(function.args.args) != 1:
            continue
        (result,), name = function.body[-1:], function.args.args[0].arg
        if isinstance(result, ast.Return) and re.fullmatch(
            rf"(F|torch)\.\w+\({name}\)", ast.unparse(result.value or result)
        ):
            is_alone = len(function.body) == 1 + isinstance(function.body[0], ast.Expr)
            for call in (n for n in ast.walk(file) if isinstance(n, ast.Call) and is_alone):
                if isinstance(call.func, ast.Name) and call.func.id == function.name:
                    call.func = cast("ast.Call", result.value).func


# Attributes and variables.


def _replace_attributes(node: ast.ClassDef, file: ast.Module) -> None:
    """Replace attributes that are set once to a constant; drop unread ones."""
    constructor = next((f for f in functions_in(node) if f.name == "__init__"), None)
    if constructor is None:
        return
    stored, read = _attributes(node, ast.Store), _attributes(file, ast.Load)
    inside, constants, body = _attributes(node, ast.Load), {}, []
    for statement in constructor.body:
        pairs = list(assigned_pairs(statement))
        remaining = []
        for target, value in pairs:
            is_own = isinstance(target, ast.Attribute) and stored[target.attr] == 1
            name = target.attr if isinstance(target, ast.Attribute) else ""
            if is_own and isinstance(value, ast.Constant) and inside[name] == read[name]:
                constants[name] = value
            elif not (is_own and not read[name] and _is_pure(value)):
                remaining.append((target, value))
        if len(remaining) == len(pairs):
            body.append(statement)
        elif remaining:
            body.append(_assignment(statement, remaining))
    constructor.body = body or [ast.Pass()]
    if constants:
        node.body = [_Substitution({}, constants).visit(statement) for statement in node.body]


def assigned_pairs(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with its value."""
    if not isinstance(statement, ast.Assign):
        return
    for target in statement.targets:
        value = statement.value
        if not isinstance(target, ast.Tuple):
            yield target, value
        elif isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
            yield from zip(target.elts, value.elts, strict=True)


def _assignment(statement: ast.stmt, pairs: list[tuple[ast.expr, ast.expr]]) -> ast.Assign:
    targets, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    is_one = len(pairs) == 1
    target = targets[0] if is_one else ast.Tuple(targets, ast.Store())
    value = values[0] if is_one else ast.Tuple(values, ast.Load())
    return ast.copy_location(ast.Assign([target], value), statement)


def _replace_locals(function: _Function) -> None:
    """Replace variables that are set once, to an option or an empty tuple."""
    stored = Counter(n.id for n in _stored(function) if isinstance(n, ast.Name))
    constants: dict[str, ast.expr] = {}
    for statement in [*function.body]:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
            is_empty = isinstance(value, ast.Tuple) and not value.elts
            if stored[name] == 1 and (_is_option(value) or is_empty):
                constants[name] = value
                function.body.remove(statement)
    if constants:
        _substitute(function, constants)


# Folding and removing.

_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
}


class _Folder(ast.NodeTransformer):
    """Evaluates expressions of constants and folds branches."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Fold a comparison of two constants."""
        self.generic_visit(node)
        compare = _COMPARISONS.get(type(node.ops[0]))
        left, right = node.left, node.comparators[0]
        is_known = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
        if compare is None or len(node.ops) > 1 or not is_known:
            return node
        return ast.Constant(compare(left.value, right.value))  # type: ignore[attr-defined]

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Fold ``not``."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.Constant(not node.operand.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Fold ``and`` and ``or``."""
        self.generic_visit(node)
        decisive, values = isinstance(node.op, ast.Or), []
        for value in node.values:
            if not isinstance(value, ast.Constant):
                values.append(value)
            elif bool(value.value) == decisive:
                values.append(value)
                break
        if not values:
            return node.values[-1]
        if isinstance(node.op, ast.And) and isinstance(values[-1], ast.Constant):
            return ast.Constant(False) if all(map(_is_pure, values)) else node
        node.values = values
        return values[0] if len(values) == 1 else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Fold a product with 1.0."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult):
            for a, b in ((node.left, node.right), (node.right, node.left)):
                if isinstance(a, ast.Constant) and a.value == 1.0 and type(a.value) is float:
                    return b
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Fold a conditional expression with a constant test."""
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Fold a look-up of a constant key; drop an empty starred argument."""
        self.generic_visit(node)
        table = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(table, ast.Dict) and _is_option(node.args[0]):
            keys = [ast.dump(key) for key in table.keys if key is not None]
            argument = ast.dump(node.args[0])
            return table.values[keys.index(argument)] if argument in keys else ast.Constant(None)
        node.args = [a for a in node.args if ast.unparse(a) != "*()"]
        return node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Fold an ``if`` with a constant test."""
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return _reached(node.body if node.test.value else node.orelse)
        node.body = _reached(node.body) or [ast.Pass()]
        return node

    def visit_FunctionDef(self, node: _Function) -> _Function:
        """Drop statements after a return."""
        self.generic_visit(node)
        node.body = _reached(node.body) or [ast.Pass()]
        return node


def _reached(body: list[ast.stmt]) -> list[ast.stmt]:
    ends = (i for i, s in enumerate(body) if isinstance(s, ast.Return | ast.Raise))
    return body[: next(ends, len(body)) + 1]


def _remove_unused(file: ast.Module, roots: tuple[str, ...]) -> None:
    """Remove unread methods and attributes of classes, then unread definitions."""
    read = _attributes(file, ast.Load) + _attributes(file, ast.Store)
    for node in file.body:
        if isinstance(node, ast.ClassDef) and node.name not in roots:
            node.body = [part for part in node.body if _is_used(part, read)] or [ast.Pass()]
    loads = {id(node): _loads(node) for node in file.body}
    total = sum(loads.values(), Counter[str]())
    for node in reversed([*file.body]):
        name, inside = _name(node), loads[id(node)]
        if name not in roots and total[name] == inside[name]:
            file.body.remove(node)
            total -= inside


def _is_used(part: ast.stmt, read: Counter[str]) -> bool:
    name = _name(part)
    return not name or name.startswith("__") or name == "forward" or read[name] > 0


def _name(node: ast.stmt) -> str:
    """The name that a statement defines; empty if there is none."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""
