"""Convert the arguments of public functions to the types of their annotations."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import pydantic

from nas.common.config import describe, parse_model

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that converts its arguments to the types of its annotations.

    Numbers and arrays of numpy become numbers and lists of Python. Where it is expected, a Path
    becomes a str, and a single item a list. ConfigError is raised if an argument is unknown, is
    missing, or has another type; TypeError if it has a wrong position or is given twice.
    """
    signature = inspect.signature(function)
    model = functools.cache(functools.partial(_model, function))

    @functools.wraps(function)
    def converting(*args: P.args, **kwargs: P.kwargs) -> R:
        named = {name: kwargs[name] for name in kwargs if name in signature.parameters}
        given = signature.bind_partial(*args, **named).arguments | kwargs
        arguments = parse_model(given, model(), f"nas.{function.__name__}")
        return function(**{name: getattr(arguments, name) for name in given})  # type: ignore[call-arg]

    return converting


def _model(function: Callable[..., Any]) -> type[pydantic.BaseModel]:
    """Return a model whose fields are a function's parameters, with those of its ``**options``."""
    types = typing.get_type_hints(function)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = typing.get_args(types[name])  # of Unpack[TypedDict]
            texts = {key: ref.__forward_arg__ for key, ref in options.__annotations__.items()}
            for option, hint in typing.get_type_hints(options).items():
                fields[option] = (_lenient(hint, texts[option]), None)
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (_lenient(types[name], parameter.annotation), default)
    config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return pydantic.create_model(function.__name__, __config__=config, **fields)


def _lenient(hint: Any, text: str) -> Any:
    """Return a type that also accepts what may stand for its values; ``text`` is its source."""

    def validate(value: Any, handler: pydantic.ValidatorFunctionWrapHandler) -> Any:
        errors = []
        for form in _forms(value):
            try:
                return handler(form)
            except pydantic.ValidationError as error:
                errors.append(error)
        if errors[0].error_count() == 1:
            raise errors[0]
        raise ValueError(f"found {describe(value)}; expected {text}")  # each member of a union

    return Annotated[hint, pydantic.WrapValidator(validate)]


def _forms(value: Any) -> Iterator[Any]:
    value = value.tolist() if hasattr(value, "tolist") else value
    yield value
    if isinstance(value, Path):
        yield str(value)
    yield [value]
