"""Mathematics that a primitive declares beside its module: factors of scores, weights, signs.

    @primitive("elu_product", ..., factors=Factors(query="features", key="features"))
    class EluProduct(nn.Module): ...

The compiler, the counts of multiply-adds, decoding and the algebra of genomes read the declaration,
and never the primitive's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Factors:
    """Scores of queries and keys as products of features of single tokens.

        scores_ij = f(q_i)·g(k_j) / sqrt(r) + b(k_j) + c(q_i)

    Attributes:
        query: the method of the class that computes f, (b, h, q, w) to (b, h, q, m); None where f
            is the query itself.
        key: the same for g. Heads that share their keys share their features, so that it must
            treat all heads alike.
        bias: the method that computes b, (b, h, k, w) to (b, h, k, 1), alike for all heads; None
            for no b.
        is_scaled: whether products are divided by sqrt(r), r the module's ``rank``.
        has_query_term: whether there is a c. It is left out, which weights alone allow that do not
            change when all scores of a query rise by the same number.
        width: m, from the width of an operand and the parameters.
    """

    query: str | None = None
    key: str | None = None
    bias: str | None = None
    is_scaled: bool = False
    has_query_term: bool = False
    width: Callable[[int, Mapping[str, Any]], int] = lambda width, params: width

    @property
    def is_plain(self) -> bool:
        """Whether the operands themselves are multiplied, and nothing else is done."""
        return self.query is self.key is self.bias is None and not self.has_query_term


@dataclass(frozen=True)
class ScoreChange:
    """A change of scores that leaves them products of features; of two scores it is their sum.

        out_ij = t_h scores_ij,   scores_ij + b(k_j),   scores_ij - m_h |i - j|   or
                 c tanh(scores_ij / c),   by the attribute that is set

    Attributes:
        factor: the module's attribute that holds t, one number for each head.
        bias: the method of the module that computes b, (b, h, k, w) to (b, h, k, 1).
        shifted: the method that adds to queries what makes their products with the same keys hold
            b: (q + u)·k = q·k + b(k).
        slopes: from the number of heads and a tensor of the device to m, (h).
        cap: the parameter that is c.
    """

    factor: str | None = None
    bias: str | None = None
    shifted: str | None = None
    slopes: Callable[[int, Tensor], Tensor] | None = None
    cap: str | None = None


class Weights(StrEnum):
    """Weights by which values can be summed without a tensor of all weights."""

    SOFTMAX = "softmax"  # exp(s_ij) / sum_k exp(s_ik)
    SOFTMAX_ONE = "softmax_one"  # the same with 1 more in the denominator
    SIGMOID = "sigmoid"  # 1 / (1 + exp(-s_ij))
    SIGMOID_OVER_LENGTH = "sigmoid_over_length"  # of s_ij - log n, n the number of visible keys
    LINEAR = "linear"  # s_ij / n
    MEAN = "mean"  # 1 / n

    @property
    def ignores_shifts(self) -> bool:
        """Whether a number added to all scores of a query changes no weight."""
        return self in (Weights.SOFTMAX, Weights.MEAN)

    @property
    def takes_shapes(self) -> bool:
        """Whether there is a kernel for scores with slopes or a cap."""
        return self in (Weights.SOFTMAX, Weights.SIGMOID, Weights.SIGMOID_OVER_LENGTH)

    @property
    def is_by_sums(self) -> bool:
        """Whether sums over the keys can come before the queries."""
        return self in (Weights.LINEAR, Weights.MEAN)


class Sign(NamedTuple):
    """Signs of a result that are provable, whatever the parameters learn.

    Attributes:
        is_non_negative: never below zero, and without a gradient wherever it is zero. A rectifier
            of it then changes neither values nor gradients.
        is_non_positive: never above zero.
        is_zero: zero everywhere, and no operand gets a gradient through it.
    """

    is_non_negative: bool = False
    is_non_positive: bool = False
    is_zero: bool = False


# A result's signs from its operands', in their order; ``is_square``: both operands are one.
SignRule = Callable[[Sequence[Sign], bool], Sign]


def unknown_sign(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Nothing is known."""
    return Sign()


ZERO: Final = Sign(is_non_negative=True, is_non_positive=True, is_zero=True)


def zero_of_first(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Zero where the first operand is; nothing is known elsewhere."""
    return ZERO if operands[0].is_zero else Sign()


def zero_of_any(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Zero where some operand is; nothing is known elsewhere."""
    return ZERO if any(sign.is_zero for sign in operands) else Sign()


def rectified(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Never below zero, and zero where the first operand is never above it."""
    return ZERO if operands[0].is_non_positive else Sign(is_non_negative=True)


def non_negative(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Never below zero, whatever the operands are."""
    return Sign(is_non_negative=True)


def non_positive(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Never above zero, whatever the operands are."""
    return Sign(is_non_positive=True)


def non_positive_like_first(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Never above zero where the first operand is not."""
    return Sign(is_non_positive=operands[0].is_non_positive)


def sign_of_first(operands: Sequence[Sign], is_square: bool) -> Sign:
    """The first operand's: it is multiplied by positive numbers."""
    return operands[0]


def sign_of_sum(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Signs that all summands have."""
    return Sign(*(all(signs) for signs in zip(*operands, strict=True)))


def sign_of_product(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Squares and products of non-negative numbers are non-negative."""
    if any(sign.is_zero for sign in operands):
        return ZERO
    return Sign(is_non_negative=is_square or all(sign.is_non_negative for sign in operands))
