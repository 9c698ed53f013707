"""Write calls of parameter-free primitives as expressions instead of modules."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from nas.compiler.inlining import PROVIDED, globals_of, source_of
from nas.compiler.specialising import assigned_pairs, functions_in, specialise
from nas.compiler.text import LINE

if TYPE_CHECKING:
    from nas.compiler.plan import Step

_MOST_LINES: Final = 3


@dataclass(frozen=True)
class Lines:
    """A primitive's ``forward`` in terms of a step's operands.

    Attributes:
        lines: statements; the last one assigns the result.
        roots: classes and functions of this package that the lines use.
        constants: attributes of the block that the lines read, with their expressions.
    """

    lines: list[str]
    roots: list[Any]
    constants: dict[str, str]


def written_out(
    step: Step, operands: Mapping[str, str], sizes: Mapping[str, str], params: Mapping[str, Any]
) -> Lines | None:
    """Write a call of a primitive without weights as at most three lines.

    Args:
        operands: texts of the operands and extras, by the names of ``forward``'s arguments.
        sizes: texts of the constructor's size arguments.
        params: values of the constructor's other arguments.

    Returns:
        None if the primitive has weights, or if its code is longer or has other statements than
        assignments and a return.
    """
    module: Any = step.primitive.module
    index = step.index
    if step.primitive.is_parametric or not module.__bases__[0].__module__.startswith("torch."):
        return None
    arguments = inspect.signature(module.__init__).parameters
    options = [f"{name}={value!r}" for name, value in params.items() if name in arguments]
    call = f"result = {module.__name__}({', '.join(options)})"
    (source, _) = specialise((source_of(module), call), ("result",))
    methods = {function.name: function for function in functions_in(ast.parse(source))}
    texts = dict(sizes) | {name: repr(value) for name, value in params.items()}
    constructor = _Writer({name: _parsed(text) for name, text in texts.items()}, {}, index)
    attributes: dict[str, ast.expr] = {}
    for statement in methods["__init__"].body[1:] if "__init__" in methods else ():
        pairs = list(assigned_pairs(statement))
        if not pairs:
            return None
        attributes |= {
            cast("Any", target).attr: constructor.visit(value) for target, value in pairs
        }
    writer = _Writer({name: _parsed(text) for name, text in operands.items()}, attributes, index)
    lines = _statements(writer, methods["forward"].body, step.variable)
    if lines is None or writer.is_method_called or len(lines) > _MOST_LINES:
        return None
    if max(map(len, lines)) > LINE:
        return None
    scope = vars(sys.modules[module.__module__])
    used = sorted({name for line in lines for name in globals_of(line)} - PROVIDED)
    return Lines(lines, [scope[name] for name in used if name in scope], writer.constants)


def _statements(writer: _Writer, body: list[ast.stmt], target: str) -> list[str] | None:
    """The lines of assignments and a return; None if the body has other statements."""
    lines: list[str] = []
    for statement in body:
        if isinstance(statement, ast.Return) and statement.value is not None:
            return [*lines, f"{target} = {_text(writer.visit(statement.value))}"]
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            value = writer.visit(statement.value)
            variable = f"{name}_{writer.index}"
            writer.names = {**writer.names, name: _parsed(variable)}
            lines.append(f"{variable} = {_text(value)}")
        else:
            return None
    return None


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _text(node: ast.AST) -> str:
    return ast.unparse(node).replace("** (-0.5)", "** -0.5")


class _Writer(ast.NodeTransformer):
    """Replaces arguments by their texts, and attributes of a module by constants of the block."""

    def __init__(
        self, names: Mapping[str, ast.expr], attributes: Mapping[str, ast.expr], index: int
    ) -> None:
        self.names, self.attributes, self.index = names, attributes, index
        self.constants: dict[str, str] = {}
        self.is_method_called = False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace an argument."""
        return self.names.get(node.id, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace an attribute of ``self``."""
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if not is_own:
            return self.generic_visit(node)
        if node.attr not in self.attributes:
            self.is_method_called = True
            return node
        value = self.attributes[node.attr]
        if isinstance(value, ast.Constant):
            return value
        name = f"{node.attr}_{self.index}"
        self.constants[name] = _text(value)
        return _parsed(f"self.{name}")
