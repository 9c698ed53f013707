"""Signs of results that primitives declare, as far as they hold for all inputs and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Flag
from functools import reduce
from operator import and_


class Sign(Flag):
    """The sign of a result, as far as it is provable for all inputs and learned parameters."""

    UNKNOWN = 0
    NON_NEGATIVE = 1
    NON_POSITIVE = 2
    ZERO = 3


# A rule returns the sign of a result, given the signs of the operands.
SignRule = Callable[[Sequence[Sign]], Sign]


def unknown_sign(operands: Sequence[Sign]) -> Sign:
    """Return an unknown sign, as the sign rule of an operation without a provable sign."""
    return Sign.UNKNOWN


def non_negative(operands: Sequence[Sign]) -> Sign:
    """Return a non-negative sign for operands of any sign."""
    return Sign.NON_NEGATIVE


def rectified(operands: Sequence[Sign]) -> Sign:
    """Return the sign of a ReLU: zero if the first operand is non-positive, else non-negative."""
    return operands[0] | Sign.NON_NEGATIVE


def lowered(operands: Sequence[Sign]) -> Sign:
    """Return the sign of the first operand minus numbers that are not negative."""
    return operands[0] & Sign.NON_POSITIVE


def keeps_zero(operands: Sequence[Sign]) -> Sign:
    """Return the sign of a linear map of the first operand: zero if the operand is."""
    return Sign.ZERO if operands[0] is Sign.ZERO else Sign.UNKNOWN


def common_sign(operands: Sequence[Sign]) -> Sign:
    """Return the sign that all operands have, as for a sum or a multiple of one operand."""
    return reduce(and_, operands)


def sign_of_product(operands: Sequence[Sign]) -> Sign:
    """Return the sign of a product: zero if an operand is, non-negative if all operands are."""
    return Sign.ZERO if Sign.ZERO in operands else common_sign(operands) & Sign.NON_NEGATIVE
