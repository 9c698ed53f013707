"""Mathematical properties that primitives declare: factors of scores, kinds of weights, signs.

    @primitive("elu_product", ..., factors=Factors(query="features", key="features"))
    class EluProduct(nn.Module): ...

The compiler, the cost counts, decoding and the check for constant outputs read these properties,
and do not depend on the names of primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Factors:
    """The factorisation of scores into features f of the query and features g of the key.

        scores_ij = f(q_i)·g(k_j) / sqrt(r) + b(k_j) + c(q_i)

    Attributes:
        query: name of the method that computes f, from (b, h, q, w) to (b, h, q, m); None if f is
            the identity.
        key: name of the method that computes g, from (b, h, k, w) to (b, h, k, m); None if g is
            the identity. It must compute the same function for all heads, because heads that share
            keys share key features.
        bias: name of the method that computes b, from (b, h, k, w) to (b, h, k, 1); None if there
            is no b. It must compute the same function for all heads.
        is_scaled: whether products are divided by sqrt(r), where r is the module's ``rank``.
        is_gated: whether each feature of a product is multiplied by the forget gates between query
            and key, which are the third operand. No other score is then added.
        has_query_term: whether there is a term c. The factorisation is then used, without c, only
            if adding a number to all scores of a query does not change the weights.
        width: returns the number m of features, given the width of an operand and the parameters.
    """

    query: str | None = None
    key: str | None = None
    bias: str | None = None
    is_scaled: bool = False
    is_gated: bool = False
    has_query_term: bool = False
    width: Callable[[int, Mapping[str, Any]], int] = lambda width, params: width

    @property
    def is_plain(self) -> bool:
        """Whether the scores are the products q·k, scaled or not."""
        has_more = self.is_gated or self.has_query_term
        return self.query is self.key is self.bias is None and not has_more


@dataclass(frozen=True)
class ScoreChange:
    """A change of factorised scores (``Factors``) that the kernels for such scores support.

    Exactly one of ``factor``, ``bias``, ``slopes``, ``cap`` and ``decays`` selects the change. If
    none of them is set, the operation adds two scores.

    Attributes:
        factor: name of the module's attribute t, shape (h), by which the scores are multiplied.
        bias: name of the method that computes b(k_j), from (b, h, k, w) to (b, h, k, 1), which is
            added to the scores.
        shifted: name of the method that returns q + u such that (q + u)·k = q·k + b(k). It is set
            together with ``bias``.
        slopes: returns m, shape (h), from the number of heads and a tensor on the device of the
            result; m_h |i - j| is subtracted from the scores.
        cap: name of the parameter c with which the scores become c tanh(scores / c).
        decays: whether |c_i - c_j| is subtracted from the scores, where c are the second operand,
            the summed logarithms of forget gates of a head.
    """

    factor: str | None = None
    bias: str | None = None
    shifted: str | None = None
    slopes: Callable[[int, Tensor], Tensor] | None = None
    cap: str | None = None
    decays: bool = False


class Weights(StrEnum):
    """A kind of weights for which a kernel computes weights times values in one step."""

    SOFTMAX = "softmax"  # exp(s_ij) / sum_k exp(s_ik)
    SOFTMAX_ONE = "softmax_one"  # exp(s_ij) / (1 + sum_k exp(s_ik))
    SOFTMAX_SINK = "softmax_sink"  # exp(s_ij) / (exp(t) + sum_k exp(s_ik)), t the module's ``sink``
    SIGMOID = "sigmoid"  # 1 / (1 + exp(-s_ij))
    SIGMOID_OVER_LENGTH = "sigmoid_over_length"  # sigmoid(s_ij - log n), n visible keys
    LINEAR = "linear"  # s_ij / n
    SUM = "sum"  # s_ij
    RATIO = "ratio"  # s_ij / sum_k s_ik; the kernel needs scores that are provably not negative
    MEAN = "mean"  # 1 / n

    @property
    def ignores_shifts(self) -> bool:
        """Whether the weights do not change if a number is added to all scores of a query."""
        return self in (Weights.SOFTMAX, Weights.MEAN)

    @property
    def takes_shapes(self) -> bool:
        """Whether the kernel for these weights supports scores with ALiBi slopes or a soft cap."""
        return self in (Weights.SOFTMAX, Weights.SIGMOID, Weights.SIGMOID_OVER_LENGTH)

    @property
    def is_linear(self) -> bool:
        """Whether the weights are the scores, up to a factor of each query."""
        return self in (Weights.LINEAR, Weights.SUM, Weights.RATIO)

    @property
    def is_by_sums(self) -> bool:
        """Whether the kernel for these weights sums over the keys once for all queries."""
        return self.is_linear or self is Weights.MEAN


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


def common_sign(operands: Sequence[Sign]) -> Sign:
    """Return the sign that all operands have, as for a sum or a multiple of one operand."""
    return reduce(and_, operands)


def sign_of_product(operands: Sequence[Sign]) -> Sign:
    """Return the sign of a product: zero if an operand is, non-negative if all operands are."""
    return Sign.ZERO if Sign.ZERO in operands else common_sign(operands) & Sign.NON_NEGATIVE
