"""Mathematical properties that primitives declare: factors of scores, weights, signs.

    @primitive("elu_product", ..., factors=Factors(query="features", key="features"))
    class EluProduct(nn.Module): ...

The compiler, the counts of multiply-adds, decoding and the algebra of genomes read these
declarations and never test a primitive's name.
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
        query: name of the method that computes f, (b, h, q, w) to (b, h, q, m); None if f is the
            identity.
        key: the same for g. Heads that share keys share key features, so the method must compute
            the same function for all heads.
        bias: name of the method that computes b, (b, h, k, w) to (b, h, k, 1), the same for all
            heads; None without b.
        is_scaled: whether products are divided by sqrt(r), r the module's ``rank``.
        has_query_term: whether c exists. The compiler omits it, which only weights allow that are
            invariant when a number is added to all scores of a query.
        width: computes m from the width of an operand and the parameters.
    """

    query: str | None = None
    key: str | None = None
    bias: str | None = None
    is_scaled: bool = False
    has_query_term: bool = False
    width: Callable[[int, Mapping[str, Any]], int] = lambda width, params: width

    @property
    def is_plain(self) -> bool:
        """Whether scores are plain products of the operands, up to the scale."""
        return self.query is self.key is self.bias is None and not self.has_query_term


@dataclass(frozen=True)
class ScoreChange:
    """A change of scores that keeps them products of features.

        out_ij = t_h scores_ij,   scores_ij + b(k_j),   scores_ij - m_h |i - j|   or
                 c tanh(scores_ij / c),   by the attribute that is set;
                 without an attribute the sum of two scores

    Attributes:
        factor: name of the module's attribute t, one number per head.
        bias: name of the module's method that computes b, (b, h, k, w) to (b, h, k, 1).
        shifted: name of the method that returns q + u, with (q + u)·k = q·k + b(k).
        slopes: returns m, shape (h), from the number of heads and a tensor on the device.
        cap: name of the parameter c.
    """

    factor: str | None = None
    bias: str | None = None
    shifted: str | None = None
    slopes: Callable[[int, Tensor], Tensor] | None = None
    cap: str | None = None


class Weights(StrEnum):
    """Kinds of weights for which a kernel sums values without storing the weights."""

    SOFTMAX = "softmax"  # exp(s_ij) / sum_k exp(s_ik)
    SOFTMAX_ONE = "softmax_one"  # exp(s_ij) / (1 + sum_k exp(s_ik))
    SIGMOID = "sigmoid"  # 1 / (1 + exp(-s_ij))
    SIGMOID_OVER_LENGTH = "sigmoid_over_length"  # sigmoid(s_ij - log n), n visible keys
    LINEAR = "linear"  # s_ij / n
    MEAN = "mean"  # 1 / n

    @property
    def ignores_shifts(self) -> bool:
        """Whether adding a number to all scores of a query keeps the weights."""
        return self in (Weights.SOFTMAX, Weights.MEAN)

    @property
    def takes_shapes(self) -> bool:
        """Whether a kernel supports scores with slopes or a cap."""
        return self in (Weights.SOFTMAX, Weights.SIGMOID, Weights.SIGMOID_OVER_LENGTH)

    @property
    def is_by_sums(self) -> bool:
        """Whether sums over the keys can be computed without the queries."""
        return self in (Weights.LINEAR, Weights.MEAN)


class Sign(NamedTuple):
    """The sign of a result that is provable for all values of the parameters.

    Attributes:
        is_non_negative: never negative, and with zero gradient wherever it is zero, so that a ReLU
            changes neither values nor gradients.
        is_non_positive: never positive.
        is_zero: zero everywhere, with zero gradients for all operands.
    """

    is_non_negative: bool = False
    is_non_positive: bool = False
    is_zero: bool = False


# From the signs of the operands, and whether both are the same tensor, to the result's sign.
SignRule = Callable[[Sequence[Sign], bool], Sign]


def unknown_sign(operands: Sequence[Sign], is_square: bool) -> Sign:
    """No sign is provable."""
    return Sign()


ZERO: Final = Sign(is_non_negative=True, is_non_positive=True, is_zero=True)


def zero_of_first(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Zero if the first operand is zero, else unknown."""
    return ZERO if operands[0].is_zero else Sign()


def zero_of_any(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Zero if any operand is zero, else unknown."""
    return ZERO if any(sign.is_zero for sign in operands) else Sign()


def rectified(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Non-negative; zero if the first operand is non-positive."""
    return ZERO if operands[0].is_non_positive else Sign(is_non_negative=True)


def non_negative(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Non-negative for all operands."""
    return Sign(is_non_negative=True)


def non_positive(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Non-positive for all operands."""
    return Sign(is_non_positive=True)


def non_positive_like_first(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Non-positive if the first operand is."""
    return Sign(is_non_positive=operands[0].is_non_positive)


def sign_of_first(operands: Sequence[Sign], is_square: bool) -> Sign:
    """The sign of the first operand, which is multiplied by positive numbers."""
    return operands[0]


def sign_of_sum(operands: Sequence[Sign], is_square: bool) -> Sign:
    """The signs that all summands have in common."""
    return Sign(*(all(signs) for signs in zip(*operands, strict=True)))


def sign_of_product(operands: Sequence[Sign], is_square: bool) -> Sign:
    """Zero if a factor is zero; squares and products of non-negatives are non-negative."""
    if any(sign.is_zero for sign in operands):
        return ZERO
    return Sign(is_non_negative=is_square or all(sign.is_non_negative for sign in operands))
