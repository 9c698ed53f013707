"""Promises of every primitive about calls with a part of a sequence, as in decoding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

from torch import Tensor

from nas.genome.primitives.base import Kind
from nas.testing.cases import (
    BATCH,
    LARGE,
    Case,
    Inputs,
    arguments,
    build,
    call,
    causal,
    draw,
    extras,
)
from nas.testing.promises import require, require_same

PARTS: Final = (slice(0, 1), slice(1, 4), slice(4, LARGE.tokens))


def computes_a_part_of_a_sequence(case: Case) -> None:
    """The result at some tokens needs no other tokens, unless ``needs_all_tokens`` is true."""
    if case.primitive.needs_all_tokens:
        return
    is_paired = case.signature.is_paired
    inputs = draw(case.signature, LARGE, causal(LARGE.tokens) if is_paired else None)
    module = build(case, LARGE)
    whole, what = call(module, case, inputs), "queries" if is_paired else "tokens"
    for part in PARTS:
        given = _at(case, inputs, part)
        if case.primitive.is_positional:
            given["start"] = part.start
        result = module(*arguments(case, inputs, part), **given)
        _require_part(
            result,
            whole,
            part,
            _place("forward", part, what),
            "if it needs other tokens, set needs_all_tokens = True in the class",
        )


def continues_a_sequence(case: Case) -> None:
    """A sequence in parts, continued by ``advance``, gives the same, and the state has its size."""
    primitive, has_method = case.primitive, hasattr(case.primitive.module, "advance")
    has_features = Kind.FEATURE_GATES in (port.kind for port in case.signature.inputs)
    sizes = replace(LARGE, gates=LARGE.width if has_features else 1)
    size = primitive.state(sizes, case.params)
    if size is None:
        require(
            not has_method or not primitive.is_causal_safe(case.params),
            "the class has a method advance, and no state is declared; expected state=lambda "
            "sizes, params: the number of elements of the state",
        )
        return
    require(
        primitive.needs_all_tokens,
        "a state is declared, and the class does not need it; expected needs_all_tokens = True",
    )
    require(
        has_method,
        f"a state is declared, and {primitive.module.__name__} has no method advance(state, "
        "*operands); expected one that returns the result at the next tokens and the new state",
    )
    module, inputs, state = build(case, LARGE), draw(case.signature, LARGE), None
    whole = call(module, case, inputs)
    for part in PARTS:
        where = _place("advance", part)
        result, state = _advanced(module, case, inputs, part, state)
        _require_part(result, whole, part, where, "expected these tokens of the result of forward")
        count = sum(tensor[0].numel() for tensor in state)
        require(
            count == size,
            f"{where} returns a state of {count} elements for each sequence; the declaration "
            f"state says {size} at {sizes}",
        )


def _at(case: Case, inputs: Inputs, part: slice) -> dict[str, Any]:
    """Return the arguments by name, for a part of the tokens or queries."""
    mask = None if inputs.mask is None else inputs.mask[..., part, :]
    return extras(case, Inputs(inputs.operands, inputs.x[:, part], mask))


def _advanced(
    module: Any, case: Case, inputs: Inputs, part: slice, state: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the result of ``advance`` and the new state; raise AssertionError for other types."""
    given = {name: value for name, value in _at(case, inputs, part).items() if name != "mask"}
    where = _place("advance", part)
    try:
        returned = module.advance(state, *arguments(case, inputs, part), **given)
    except Exception as error:
        raise AssertionError(f"{where} raises {type(error).__name__}: {error}") from error
    is_pair = isinstance(returned, tuple) and len(returned) == 2
    is_state = is_pair and isinstance(returned[1], tuple)
    require(
        is_state and all(isinstance(t, Tensor) and t.shape[:1] == (BATCH,) for t in returned[1]),
        f"{where} returns {_types(returned)}; expected the result and the new state, a tuple of "
        "tensors whose first axis is the batch",
    )
    return cast("tuple[Tensor, tuple[Tensor, ...]]", returned)


def _place(method: str, part: slice, what: str = "tokens") -> str:
    return f"{method}, called for {what} {part.start} to {part.stop - 1} only,"


def _types(value: Any) -> str:
    """Return the type of a value; the types of the members of a tuple, and shapes of tensors."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_types, value))})"
    name = type(value).__name__
    return f"{name} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else name


def _require_part(result: Tensor, whole: Tensor, part: slice, where: str, wanted: str) -> None:
    try:
        require_same(result, whole[:, :, part], "the result", 1e-10)
    except AssertionError as error:
        raise AssertionError(f"{where} gives another result: {error}; {wanted}") from None
