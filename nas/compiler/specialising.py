"""Write a primitive for its parameters: its class without what they never reach, or a few lines.

Branches on parameters that are known are taken or left out, line by line, so that comments stay;
then the constructor's arguments that nothing reads, and what a docstring says of arguments. A
primitive without weights whose ``forward`` is a few lines is written as these lines.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from nas.compiler.inlining import PROVIDED, globals_of, source_of
from nas.compiler.text import LINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nas.compiler.plan import Step
    from nas.genome import ParamValue

    Texts = list[str | None]  # lines; None for one that is left out

_UNKNOWN: Final = object()
_NOT_FOR_READERS: Final = re.compile(r'\n\n    (?:Args:|Raises:|MACs ).*(?:\n(?! *""").+)*')
_MOST_LINES: Final = 3


def specialised(module: Any, params: Mapping[str, ParamValue]) -> tuple[str, frozenset[str]]:
    """The source of a class for these parameters, and those that its constructor still takes."""
    # With its type, since 1 and True are one key.
    given = tuple((name, type(value), value) for name, value in sorted(params.items()))
    return _specialised(module, given)


# A report writes two dozen sources, whose primitives are mostly the same.
@lru_cache(maxsize=1024)
def _specialised(
    module: Any, given: tuple[tuple[str, type, ParamValue], ...]
) -> tuple[str, frozenset[str]]:
    params = {name: value for name, _, value in given}
    lines: Texts = [*_NOT_FOR_READERS.sub("", source_of(module)).splitlines()]
    methods = _methods(lines)
    unread: set[str] = set()
    if "__init__" in methods:
        _prune(lines, methods["__init__"].body, params)
        own = [pair for line in _methods(lines)["__init__"].body for pair in _assigned(line)]
        found = {name: _UNKNOWN if text is None else _value(text, params) for name, text in own}
        known = {name: value for name, value in found.items() if value is not _UNKNOWN}
        for name, method in methods.items():
            if name != "__init__":
                _prune(lines, method.body, {"self": SimpleNamespace(**known)})
        _drop_unread(lines, set(known))
        unread = _drop_arguments(lines, params)
    text = "\n".join(line for line in lines if line is not None) + "\n"
    return text, frozenset(params) - unread


def _class(lines: Texts) -> ast.ClassDef:
    """The class that is left; its line numbers are those of all lines."""
    (found,) = ast.parse("\n".join(line or "" for line in lines)).body
    assert isinstance(found, ast.ClassDef), "a primitive's module is a class"
    return found


def _methods(lines: Texts) -> dict[str, ast.FunctionDef]:
    return {n.name: n for n in _class(lines).body if isinstance(n, ast.FunctionDef)}


def _value(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """What an expression is, or ``_UNKNOWN``."""
    if isinstance(node, ast.BoolOp):
        decisive = isinstance(node.op, ast.Or)
        found = [_value(part, scope) for part in node.values]
        if any(part is not _UNKNOWN and bool(part) == decisive for part in found):
            return decisive
    try:
        names = {"__builtins__": {}, **scope}
        return eval(compile(ast.Expression(node), "", "eval"), names)  # noqa: S307 - our own
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError):
        return _UNKNOWN


def _prune(lines: Texts, body: list[ast.stmt], scope: Mapping[str, Any]) -> None:
    """Take or leave the branches of a body whose tests are known."""
    for statement in body:
        if not isinstance(statement, ast.If):
            continue
        taken = _taken(statement, scope)
        if taken is None:
            _prune(lines, statement.body, scope)
            _prune(lines, statement.orelse, scope)
            continue
        stop = statement.end_lineno or 0
        kept = set(range(taken[0].lineno - 1, taken[-1].end_lineno or 0)) if taken else set()
        for index in range(statement.lineno - 1, stop):
            line = lines[index]
            lines[index] = line[4:] if index in kept and line else None
        _prune(lines, taken, scope)
        if taken and isinstance(taken[-1], ast.Return | ast.Raise):
            end = body[-1].end_lineno or 0
            lines[stop:end] = [None] * (end - stop)
            return


def _taken(statement: ast.If, scope: Mapping[str, Any]) -> list[ast.stmt] | None:
    """The branch that runs; None where nobody knows."""
    test = _value(statement.test, scope)
    is_elif = any(
        isinstance(s, ast.If) and s.col_offset == statement.col_offset for s in statement.orelse
    )
    if test is _UNKNOWN or is_elif:
        return None
    return statement.body if test else statement.orelse


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes that a statement sets, and to what; None where that is not one expression."""
    if not isinstance(statement, ast.Assign):
        yield from ((name, None) for name in _attributes(statement, ast.Store))
        return
    for target in statement.targets:
        pairs: list[tuple[ast.expr, ast.expr | None]] = [(target, statement.value)]
        if isinstance(target, ast.Tuple):
            whole = statement.value
            values = whole.elts if isinstance(whole, ast.Tuple) else [None] * len(target.elts)
            pairs = list(zip(target.elts, values, strict=True))
        yield from ((one.attr, value) for one, value in pairs if isinstance(one, ast.Attribute))


def _attributes(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The attributes that are read (``ast.Load``) or set."""
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute))
    return {n.attr for n in found if isinstance(n.ctx, context)}


def _drop_unread(lines: Texts, known: set[str]) -> None:
    """Leave out methods that nothing calls, then known attributes that nothing reads."""
    called = {"__init__", "forward", *_attributes(_class(lines), ast.Load)}
    for name, method in _methods(lines).items():
        if name not in called:
            start, stop = method.lineno - 2, method.end_lineno or 0
            lines[start:stop] = [None] * (stop - start)
    spare = known - _attributes(_class(lines), ast.Load)
    for line in _methods(lines)["__init__"].body:
        names = {name for name, _ in _assigned(line)}
        if isinstance(line, ast.Assign) and names and names <= spare:
            lines[line.lineno - 1 : line.end_lineno] = [None]


def _drop_arguments(lines: Texts, params: Mapping[str, ParamValue]) -> set[str]:
    """Leave out the constructor's arguments that nothing reads, where each has a line."""
    init = _methods(lines)["__init__"]
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
    step: Step, source: str, given: Mapping[str, str], texts: Mapping[str, str]
) -> Lines | None:
    """A call of a primitive without parameters as a few lines; None where it is more than that.

    Args:
        source: of its class, for the step's parameters.
        given: texts of the operands and extras, by the names of ``forward``'s arguments.
        texts: of the constructor's arguments, by name.
    """
    module, index = step.primitive.module, step.index
    if step.primitive.is_parametric or not module.__bases__[0].__module__.startswith("torch."):
        return None
    methods = _methods([*source.splitlines()])
    own = _Writer({name: _parsed(text) for name, text in texts.items()}, {}, index)
    attributes: dict[str, ast.expr] = {}
    for line in methods["__init__"].body[1:] if "__init__" in methods else ():
        for name, value in _assigned(line):
            if value is None:
                return None
            attributes[name] = own.visit(value)
        if not isinstance(line, ast.Assign):
            return None
    writer = _Writer({name: _parsed(text) for name, text in given.items()}, attributes, index)
    lines = _statements(writer, methods["forward"].body, step.variable)
    if lines is None or writer.is_method_called or len(lines) > _MOST_LINES:
        return None
    if max(map(len, lines)) > LINE:
        return None
    scope = vars(sys.modules[module.__module__])
    used = sorted({name for line in lines for name in globals_of(line)} - PROVIDED)
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
            own = f"{name}_{writer.index}"
            writer.names = {**writer.names, name: _parsed(own)}
            lines.append(f"{own} = {_text(value)}")
        else:
            return None
    return None


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _text(node: ast.AST) -> str:
    return ast.unparse(node).replace("** (-0.5)", "** -0.5")


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
        return _parsed(f"self.{name}")
