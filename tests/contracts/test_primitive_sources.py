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
            is_inlined = isinstance(value, types.FunctionType) or value is module
            assert is_inlined or word in {"torch", "math", "nn", "F", "Tensor"}, word


def test_no_two_sources_share_a_name() -> None:
    modules = [get(name).module for name in names()]
    helpers = {f for module in modules for f in functions(module) if "." not in f.__qualname__}
    found = sorted([*(m.__name__ for m in modules), *(f.__name__ for f in helpers)])
    assert found == sorted(set(found))


def functions(module: type) -> list[types.FunctionType]:
    """The methods of a class and the helpers that they call, however deep."""
    methods = [f for f in vars(module).values() if isinstance(f, types.FunctionType)]
    found = [inspect.unwrap(f) for f in methods]  # from what checks shapes
    for function in found:
        for name in sorted(globals_read(function.__code__)):
            value = function.__globals__.get(name)
            if isinstance(value, types.FunctionType) and inspect.unwrap(value) not in found:
                found.append(inspect.unwrap(value))
    return found


def globals_read(code: types.CodeType) -> set[str]:
    """The names that code looks up, nested functions included."""
    nested = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*(globals_read(c) for c in nested))
