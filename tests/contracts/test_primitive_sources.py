"""What an export relies on: sources that need torch and math alone, under names of their own."""

from __future__ import annotations

import inspect
import types

import pytest

from nas.primitives import get, names


@pytest.mark.parametrize("name", names())
def test_source_needs_torch_and_math_alone(name: str) -> None:
    module = get(name).module
    for function in functions(module):
        for word in sorted(globals_read(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[word]
            is_inlined = isinstance(value, types.FunctionType) or is_own_class(value)
            assert is_inlined or word in {"torch", "math", "nn", "F", "Tensor"}, word


def test_no_two_sources_share_a_name() -> None:
    modules = [get(name).module for name in names()]
    helpers = {f for module in modules for f in functions(module) if "." not in f.__qualname__}
    classes = {*modules, *(c for module in modules for c in classes_used(module))}
    found = sorted(item.__name__ for item in (*classes, *helpers))
    assert found == sorted(set(found))


def functions(module: type) -> list[types.FunctionType]:
    """The methods of a class and the helpers that they call, however deep."""
    found = methods(module)
    for function in found:
        for name in sorted(globals_read(function.__code__)):
            value = function.__globals__.get(name)
            used = methods(value) if is_own_class(value) else [value]
            for item in used:
                if isinstance(item, types.FunctionType) and inspect.unwrap(item) not in found:
                    found.append(inspect.unwrap(item))
    return found


def methods(owner: type) -> list[types.FunctionType]:
    """The functions that a class holds, static ones too, without what checks shapes."""
    held = [getattr(f, "__func__", f) for f in vars(owner).values()]
    return [inspect.unwrap(f) for f in held if isinstance(f, types.FunctionType)]


def classes_used(module: type) -> set[type]:
    """The classes of ours that a class, or a helper of its, names."""
    read = ((f.__globals__, globals_read(f.__code__)) for f in functions(module))
    values = {scope[name] for scope, words in read for name in words & scope.keys() if name}
    return {value for value in values if is_own_class(value)}


def is_own_class(value: object) -> bool:
    return isinstance(value, type) and value.__module__.startswith("nas.")


def globals_read(code: types.CodeType) -> set[str]:
    """The names that code looks up, nested functions included."""
    nested = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(globals_read(c) for c in nested))
