"""Promises of every primitive about calls with a part of a sequence."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from nas.testing.cases import (
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
from nas.testing.promises import require_same

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


def _at(case: Case, inputs: Inputs, part: slice) -> dict[str, Any]:
    """Return the arguments by name, for a part of the tokens or queries."""
    mask = None if inputs.mask is None else inputs.mask[..., part, :]
    return extras(case, Inputs(inputs.operands, inputs.x[:, part], mask))


def _place(method: str, part: slice, what: str = "tokens") -> str:
    return f"{method}, called for {what} {part.start} to {part.stop - 1} only,"


def _require_part(result: Tensor, whole: Tensor, part: slice, where: str, wanted: str) -> None:
    try:
        require_same(result, whole[:, :, part], "the result", 1e-10)
    except AssertionError as error:
        raise AssertionError(f"{where} gives another result: {error}; {wanted}") from None
