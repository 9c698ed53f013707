"""Specialise readable source: remove the options that a mechanism does not use.

An option is a value None, True, False, a string, 1 or (). The sources form a whole file, so that
every call of a function is known. If all calls pass the same option as an argument, the option
replaces the parameter. If a variable or attribute is assigned only once, and the value is an
option, the option replaces the variable or attribute. Then constant branches are resolved and
unread code is removed. The process repeats until nothing changes.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import compress
from typing import Any, Final, TypeAlias

from nas.compiler.statements import StatementWriter

_NOT_FOR_READERS: Final = re.compile(r'\n\n    (?:Args:|Raises:|MACs ).*(?:\n(?! *""").+)*')
_Values: TypeAlias = dict[str, ast.expr | None]
# Reads by which a module may be called under another name than that of its attribute.
_INDIRECT: Final = (
    *(".forward", ".__call__", "getattr", "setattr", ".add_module", ".register_module"),
    *(".children", ".named_children", ".modules", ".named_modules", ".get_submodule"),
)
_CONSTANT: Final = (ast.Constant, ast.Tuple, ast.Load, ast.Compare, ast.cmpop, ast.UnaryOp, ast.Not)


@lru_cache(maxsize=1024)  # the mechanisms of a report share most primitives
def specialise(
    sources: tuple[str, ...], roots: tuple[str, ...] = ("Attention",)
) -> tuple[str, ...]:
    """Return the definitions of a file without unused options and unused definitions.

    Class docstrings lose sections such as ``Args:``, because readers of the file do not need them.

    Args:
        sources: one class, function or assignment each. A definition comes before the definitions
            that use it.
        roots: names of the definitions that are kept even if nothing reads them.
    """
    texts = (_NOT_FOR_READERS.sub("", s) if s.startswith("class") else s for s in sources)
    text = "\n".join(texts)
    file, before = ast.parse(text), ""
    writer = StatementWriter(text, file)
    while (dump := ast.dump(file)) != before:
        before = dump
        _replace_options(file)
        _remove_unread(file, roots)
    return tuple("\n".join(writer.lines_of(node)) + "\n" for node in file.body)


def name_of(node: ast.AST) -> str:
    """Return the name of a definition, variable or attribute of ``self``, or else "".

    The name of an attribute begins with a dot. An assignment has the name of its target.
    """
    match node:
        case ast.Name(name) | ast.FunctionDef(name) | ast.ClassDef(name):
            return str(name)
        case ast.Attribute(ast.Name("self"), name):
            return f".{name}"
        case ast.Assign([target]) | ast.AnnAssign(target):
            return name_of(target)
    return ""


def functions_in(node: ast.AST) -> list[ast.FunctionDef]:
    """Return all functions and methods in a syntax tree."""
    return [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]


def _names(tree: ast.AST, context: type[ast.expr_context] = ast.Load) -> Counter[str]:
    """Count how often each variable and attribute is read; the name of an attribute has a dot.

    Args:
        context: ``ast.Store`` counts assignments instead, parameters and names in patterns, too.
    """
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Name | ast.Attribute)]
    nodes = [n for n in nodes if isinstance(n.ctx, context)]
    names = Counter(n.id if isinstance(n, ast.Name) else f".{n.attr}" for n in nodes)
    if context is ast.Store:
        names.update(n.arg for n in ast.walk(tree) if isinstance(n, ast.arg))
        names.update(n.name for n in ast.walk(tree) if isinstance(n, ast.MatchAs) and n.name)
    return names


def _is_option(value: ast.expr | None) -> bool:
    match value:
        case ast.Constant(None | bool() | str() | 1) | ast.Tuple([]):
            return True
    return False


def _is_pure(value: ast.expr | None) -> bool:
    impure = ast.Call, ast.NamedExpr
    return value is not None and not any(isinstance(n, impure) for n in ast.walk(value))


def _replace_options(file: ast.Module) -> None:
    """Replace parameters, variables and attributes by the only option that they can be, in place.

    An attribute is replaced only if it is assigned in the constructor of a class that is called,
    never read otherwise, and derived from ``nn.Module`` alone.
    """
    calls: defaultdict[str, list[ast.Call]] = defaultdict(list)
    for node in ast.walk(file):
        if isinstance(node, ast.Call):
            calls[name_of(node.func)].append(node)
    read, functions = _names(file), [*_functions(file)]
    _add_forward(file, calls, read)
    defined = Counter(name for name, _, _ in functions)
    stores = {owner: _names(owner, ast.Store) for owner in file.body}
    changed = {  # attributes that are assigned from outside of their class
        f".{n.attr}"
        for n in ast.walk(file)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and not name_of(n)
    }
    for name, owner, function in functions:
        stored = stores[owner]
        assigned = {name_of(s): s.value for s in function.body if isinstance(s, ast.Assign)}
        options: _Values = {
            n: v
            for n, v in assigned.items()
            if n and stored[n] == 1 and n not in changed and _is_option(v)
        }
        has_known_calls = defined[name] == 1 and 0 < len(calls[name]) == read[name]
        is_known = has_known_calls and not function.args.posonlyargs
        is_final = is_known and [*map(ast.unparse, getattr(owner, "bases", ()))] == ["nn.Module"]
        parameters = _defaults(function)
        values = {n: v for n, v in options.items() if n[0] != "." and n not in parameters}
        if is_known and not function.args.vararg and not function.args.kwarg:
            values |= _fixed_parameters(function, calls[name])
        fold(ast.Module(function.body, []), values, has_sizes=function.name == "__init__")
        if is_final and function.name == "__init__":
            fold(owner, {n: v for n, v in options.items() if n[0] == "."})


def _functions(file: ast.Module) -> Iterator[tuple[str, ast.stmt, ast.FunctionDef]]:
    """Yield the called name, the top-level definition and the node of each function and method.

    The called name of a constructor is the name of its class, that of ``forward`` is this name and
    "()". The called name of any other method begins with a dot.
    """
    for owner in file.body:
        for function in functions_in(owner):
            name = name_of(owner)
            match function.name:
                case "forward":
                    name = f"{name}()"
                case other if other not in ("__init__", name):
                    name = f".{other}"
            yield name, owner, function


def _add_forward(
    file: ast.Module, calls: defaultdict[str, list[ast.Call]], read: Counter[str]
) -> None:
    """Add how often each class's ``forward`` is read, and its calls, as calls of attributes.

    The calls are known if each module of the class is an attribute that is assigned once, no method
    has the name of the attribute, and no class calls itself or finds modules without their names.
    """
    stored, modules = _names(file, ast.Store), defaultdict[str, list[str]](list)
    defined = {f".{function.name}" for function in functions_in(file)}
    if calls["self"] or any(read[name] for name in _INDIRECT):
        return
    for node in ast.walk(file):
        match node:
            case ast.Assign([ast.Attribute()], ast.Call(ast.Name(kind))):
                modules[kind].append(name_of(node))
    for kind, attributes in modules.items():
        is_known = len(attributes) == read[kind] and defined.isdisjoint(attributes)
        if is_known and all(stored[attribute] == 1 for attribute in attributes):
            name = f"{kind}()"
            calls[name] = [call for attribute in attributes for call in calls[attribute]]
            read[name] = sum(read[attribute] for attribute in attributes)


def _fixed_parameters(function: ast.FunctionDef, calls: list[ast.Call]) -> _Values:
    """Remove unread parameters, and parameters that are the same option in all calls.

    Args:
        calls: all calls of the function; the arguments for removed parameters are removed, too.

    Returns:
        The option for each parameter that is the same option in all calls, by name.
    """
    body, fixed = ast.Module(function.body, []), dict[str, ast.expr | None]()
    read, stored = _names(body), _names(body, ast.Store)
    for name in _defaults(function):
        values = [_arguments(call, function)[name] for call in calls]
        is_same = len({ast.dump(value) for value in values if value}) == 1
        if is_same and all(map(_is_option, values)) and not stored[name]:
            fixed[name] = values[0]
        elif read[name] or not all(map(_is_pure, values)):
            continue
        defaults, parts = _defaults(function), function.args
        parts.args = [a for a in parts.args if a.arg != name]
        parts.kwonlyargs = [a for a in parts.kwonlyargs if a.arg != name]
        parts.defaults = [d for a in parts.args if (d := defaults.get(a.arg))]
        parts.kw_defaults = [defaults[a.arg] for a in parts.kwonlyargs]
        for call, value in zip(calls, values, strict=True):
            call.args = [argument for argument in call.args if argument is not value]
            call.keywords = [k for k in call.keywords if k.value is not value]
    return fixed


def _defaults(function: ast.FunctionDef) -> _Values:
    """Return the default of each parameter except ``self``; None stands for no default."""
    arguments = function.args
    names = [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
    defaults = [*arguments.defaults, *arguments.kw_defaults]
    pairs = zip(names, [None] * (len(names) - len(defaults)) + defaults, strict=True)
    return {name: default for name, default in pairs if name != "self"}


def _arguments(call: ast.Call, function: ast.FunctionDef) -> _Values:
    """Return the expression that each parameter gets in a call: the argument, or the default.

    If the call has starred arguments, parameters without a keyword argument get the call itself.
    """
    arguments = _defaults(function)
    keywords: _Values = {k.arg or "": k.value for k in call.keywords}
    if "" in keywords or any(isinstance(a, ast.Starred) for a in call.args):
        return {**dict.fromkeys(arguments, call), **keywords}
    return arguments | dict(zip(arguments, call.args, strict=False)) | keywords


def fold(tree: ast.AST, values: Mapping[str, ast.expr | None], *, has_sizes: bool = False) -> Any:
    """Return a tree after replacing names in place and evaluating what becomes constant.

    Args:
        values: the new expressions, by name (``name_of``) of the variable or attribute of ``self``.
        has_sizes: whether factors are sizes, as in constructors. Then a product with the integer 1
            is its other factor; elsewhere this factor may be a tensor of another type.
    """
    return _Folder(values, has_sizes).visit(tree)


class _Folder(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr | None], has_sizes: bool) -> None:
        self.values, self.has_sizes = values, has_sizes

    def visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                if value := self.values.get(name_of(node)):
                    return copy.deepcopy(value)
        self.generic_visit(node)
        match node:
            case ast.Compare() | ast.UnaryOp(ast.Not()):
                return _compared(node)
            case ast.If(ast.Constant(test)) | ast.IfExp(ast.Constant(test)):
                return node.body if test else node.orelse
            case ast.BoolOp():
                return _folded(node)
            case ast.BinOp():
                return _product(node, self.has_sizes)
            case ast.Call(ast.Name("getattr"), [owner, ast.Constant(str(name))]):
                return ast.Attribute(owner, name, ast.Load())
            case ast.Call():
                node.args = [a for a in node.args if ast.unparse(a) != "*()"]
            case ast.FunctionDef() | ast.If() | ast.For() | ast.With():
                ends = (i for i, s in enumerate(node.body) if isinstance(s, ast.Return))
                node.body = node.body[: next(ends, len(node.body)) + 1] or [ast.Pass()]
        return node


def _compared(node: ast.Compare | ast.UnaryOp) -> ast.expr:
    """Return the value of a comparison or negation of constants; others are returned unchanged."""
    match node:
        case ast.Compare(ast.Constant(a), [ast.Is() | ast.IsNot() as same], [ast.Constant(b)]):
            return ast.Constant((a is b) == isinstance(same, ast.Is))
    if all(isinstance(n, _CONSTANT) for n in ast.walk(node)):
        return ast.Constant(eval(ast.unparse(node)))  # noqa: S307 - only constants
    return node


def _product(node: ast.BinOp, has_sizes: bool) -> ast.expr:
    """Return a product without a factor 1.0 on the right or, of sizes, 1 on the left."""
    match node:
        case ast.BinOp(left, ast.Mult(), ast.Constant(float(1.0))):
            return left
        case ast.BinOp(ast.Constant(int(1)), ast.Mult(), right) if has_sizes:
            return right
    return node


def _folded(node: ast.BoolOp) -> ast.expr:
    """Return an ``and`` or ``or`` expression without operands that cannot change its value."""
    is_and, known = isinstance(node.op, ast.And), ast.Constant
    *others, last = node.values
    values = [v for v in others if not isinstance(v, known) or bool(v.value) != is_and]
    # A last operand that is a number may be the value.
    if not isinstance(last, known) or bool(last.value) != is_and or type(last.value) is int:
        values.append(last)
    if not values:
        return last
    is_false = any(isinstance(v, known) and not v.value for v in values)
    if is_and and is_false and all(map(_is_pure, values)):
        return ast.Constant(False)
    node.values = values
    return values[0] if len(values) == 1 or isinstance(values[0], known) else node


def _remove_unread(file: ast.Module, roots: tuple[str, ...]) -> None:
    """Remove unread definitions, methods, variables and attributes, except in ``roots``."""
    read = _names(file)
    file.body = [node for node in file.body if read[name_of(node)] or name_of(node) in roots]
    for node in file.body:
        if isinstance(node, ast.ClassDef) and name_of(node) not in roots:
            names = [name_of(part) for part in node.body]
            own = read - _read_of_others(file, node)
            kept = [n == "forward" or n[:2] in ("", "__") or own[f".{n}"] > 0 for n in names]
            node.body = [*compress(node.body, kept)] or [ast.Pass()]
        for function in functions_in(node) if name_of(node) not in roots else ():
            function.body = [s for s in function.body if not _is_unread(s, read)] or [ast.Pass()]


def _read_of_others(file: ast.Module, owner: ast.ClassDef) -> Counter[str]:
    """Count how often each attribute of ``self`` is read in classes of other families.

    A family is a class and all that derive from it.
    """
    classes = {node.name: node for node in file.body if isinstance(node, ast.ClassDef)}

    def eldest(node: ast.ClassDef) -> ast.ClassDef:
        base = next((classes[b] for b in map(name_of, node.bases) if b in classes), None)
        return eldest(base) if base else node

    others = [node for node in classes.values() if eldest(node) is not eldest(owner)]
    read = (n for other in others for n in ast.walk(other) if isinstance(n, ast.Attribute))
    return Counter(name for n in read if (name := name_of(n)) and isinstance(n.ctx, ast.Load))


def _is_unread(statement: ast.stmt, read: Counter[str]) -> bool:
    name = name_of(statement)
    if not isinstance(statement, ast.Assign) or not name:
        return False
    return not read[name] and _is_pure(statement.value)
