"""The declaration of primitives: role, typed operands, parameters and a torch module.

    @primitive("softmax", "scores: scores[h] -> weights[h]", role=Role.NORMALIZE, ...)
    class Softmax(nn.Module): ...

The decorator registers the class and returns it unchanged, because exported files copy its source.
All operands of a call have the same number of heads; the compiler repeats heads before the call
where needed.

``__init__`` receives the sizes that it has as arguments:

- ``dim``: model width.
- ``heads``: number of heads of the operands.
- ``width``: width of the operands that the signature calls ``w``. If the primitive has a parameter
  named width, ``head_width`` is that size.
- ``rank``: width whose square root divides scores. It is the width of the operands, or the head
  width if the operands have model width, as in Patterns.
- ``bias``: the task's ``qkv_bias``.
- ``filtered``: whether an earlier filter may have set scores to -inf.

``forward`` receives the operands and those of these arguments that it has:

- ``x``: the block's input, shape (b, n, d).
- ``mask``: bool, broadcastable to (b, h, q, k), True where attention is allowed; or None.
- ``start``: position of the first token in a call with a part of the sequence. For scores it is
  the position of the first query relative to the first key.

A class that mixes neighbouring tokens or uses absolute indices sets ``needs_all_tokens = True`` and
is never called with a part of the sequence.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nas.common.errors import GenomeError
from nas.common.registry import Registry
from nas.genome import ParamValue
from nas.genome.primitives.domains import Domain
from nas.genome.primitives.factors import Factors, ScoreChange, SignRule, Weights, unknown_sign

if TYPE_CHECKING:
    from torch import nn

Params = Mapping[str, Any]


class Role(StrEnum):
    """The function of an operation in a mechanism; rules of policies name roles."""

    TRANSFORM = "transform"  # tokens to tokens, content only
    POSITION = "position"  # tokens to tokens, by position
    SCORE = "score"  # tokens, or tokens and scores, to scores
    ADJUST = "adjust"  # scores to scores, or weights to weights
    NORMALIZE = "normalize"  # scores to weights
    AGGREGATE = "aggregate"  # weights and values to tokens
    GATE = "gate"  # tokens to tokens, multiplied by a learned gate


class Kind(StrEnum):
    """The content of a tensor: tokens (b, h, n, w), scores (b, h, q, k) or weights (b, h, q, k)."""

    TOKENS = "tokens"
    SCORES = "scores"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class Port:
    """A named operand or result of a primitive.

    Attributes:
        width: variable for the width of tokens in the signature, such as "w" in "tokens[h,w]".
            Operands with the same variable have the same width. None for scores and weights.
    """

    name: str
    kind: Kind
    width: str | None


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a primitive's operands and result, and its role with these types."""

    inputs: tuple[Port, ...]
    output: Port
    role: Role


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes at which a node runs, which are the variables of its formula for MACs.

    Attributes:
        dim: model width.
        heads: number of heads of the operands.
        width: number of features per head.
        tokens: number of keys. If a window is computed in blocks, the number of keys in a block.
        rows: number of queries; None if it equals ``tokens``.
        allowed: number of pairs of query and key for which a score is computed; None for all pairs.
    """

    dim: int
    heads: int
    width: int
    tokens: int
    rows: int | None = None
    allowed: int | None = None

    @property
    def queries(self) -> int:
        """The number of queries."""
        return self.tokens if self.rows is None else self.rows

    @property
    def both(self) -> int:
        """The sum of the numbers of queries and keys."""
        return self.queries + self.tokens

    @property
    def pairs(self) -> int:
        """The number of pairs of query and key for which a score is computed."""
        return self.queries * self.tokens if self.allowed is None else self.allowed


def pair_macs(sizes: Sizes, params: Params) -> int:
    """Count the MACs of one dot product for each pair and head."""
    return sizes.heads * sizes.pairs * sizes.width


def map_macs(sizes: Sizes, params: Params) -> int:
    """Count the MACs of one linear map (width x width) for each token and head."""
    return sizes.heads * sizes.tokens * sizes.width**2


@dataclass(frozen=True)
class Primitive:
    """A registered operation: its name, torch module, signatures and declared properties.

    Callables named ``params`` receive all parameters of a node, defaults included.

    Attributes:
        notation: formula with names of operands and parameters in braces, "softmax({scores})".
        source: paper and equation that define the operation.
        commutes: whether exchanging the first two operands keeps the result.
        is_causal_safe: returns whether, under a causal mask, no output depends on a later token.
        check: raises ``ValueError`` for parameters that exclude each other.
        caution: returns a warning about training with these parameters, or None.
        macs: returns the multiply-adds of one call at batch size 1.
        passes: returns how many times a call reads or writes all its pairs (or tokens),
            approximately. The predicted time uses it.
        is_stateful: returns whether a call in training mode changes the module's buffers.
        reach: returns the number of earlier tokens that a result depends on, or None if it is
            unbounded. Only read if ``needs_all_tokens``.
        unread: returns names of operands and parameters that have no effect. Only the shape of
            such an operand matters.
        derived: parameters that only the normal form sets, so that a space need not list them.
        least_heads: returns the smallest head count of the result, as a label such as "1/2".
        factors: how the scores factor into products of query and key features; None if they do not.
        score_change: how the operation changes such products of features; None if the results are
            no such products.
        weights: returns the kind of a normaliser's weights, or None for a kind without kernel.
        sums_values: whether the result is the weights times the values.
        homogeneous: names of operands p with f(2 p) = 2 f(p) for fixed other operands.
        is_additive: whether f(p) + f(q) = f(p + q) also holds for each of these operands.
        is_featurewise: whether each feature of the result depends only on the same feature of the
            operands, in the same way for all features, and on weights that all heads share. The
            result must not depend on how features are divided into heads.
        sign: returns the provable sign of the result, from the signs of the operands.
        sizes: names of the size arguments of the module's ``__init__``.
        extras: which of ``x`` and ``mask`` the module's ``forward`` receives.
        is_parametric: whether the module may have learned parameters.
        is_positional: whether the module's ``forward`` receives ``start``.
        needs_all_tokens: whether a result at one token needs the whole sequence at once.
    """

    name: str
    module: type[nn.Module]
    signatures: tuple[Signature, ...]
    notation: str
    source: str
    parameters: Mapping[str, Domain] = field(default_factory=dict)
    commutes: bool = False
    is_causal_safe: Callable[[Params], bool] = lambda params: True
    check: Callable[[Params], None] = lambda params: None
    caution: Callable[[Params], str | None] = lambda params: None
    macs: Callable[[Sizes, Params], int] = lambda sizes, params: 0
    passes: Callable[[Sizes, Params], int] = lambda sizes, params: 1
    is_stateful: Callable[[Params], bool] = lambda params: False
    reach: Callable[[Params], int | None] = lambda params: None
    unread: Callable[[Params], tuple[str, ...]] = lambda params: ()
    derived: tuple[str, ...] = ()
    least_heads: Callable[[Params], str] = lambda params: "one"
    factors: Factors | None = None
    score_change: ScoreChange | None = None
    weights: Callable[[Params], Weights | None] = lambda params: None
    sums_values: bool = False
    homogeneous: tuple[str, ...] = ()
    is_additive: bool = False
    is_featurewise: bool = False
    sign: SignRule = unknown_sign
    sizes: tuple[str, ...] = field(init=False)
    extras: tuple[str, ...] = field(init=False)
    is_parametric: bool = field(init=False)
    is_positional: bool = field(init=False)
    needs_all_tokens: bool = field(init=False)

    def __post_init__(self) -> None:
        module, arguments = self.module, inspect.signature(self.module.__init__).parameters
        size_names = ("dim", "heads", "width", "head_width", "rank", "bias", "filtered")
        # A declared parameter named width comes from the genome, not from the operands.
        sizes = tuple(n for n in size_names if n in arguments and n not in self.parameters)
        called = inspect.signature(module.forward).parameters
        # Without size arguments there are no size-dependent weights. A class with scalar weights,
        # or with a size that it only checks, sets ``has_parameters``.
        is_sized = bool(set(sizes) - {"rank", "filtered"})
        derived = {
            "sizes": sizes,
            "extras": tuple(name for name in ("x", "mask") if name in called),
            "is_parametric": bool(getattr(module, "has_parameters", is_sized)),
            "is_positional": "start" in called,
            "needs_all_tokens": bool(getattr(module, "needs_all_tokens", False)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def about(self) -> str:
        """The first line of the docstring of the module's class."""
        return (inspect.getdoc(self.module) or "").split("\n", 1)[0]

    @property
    def is_plain_product(self) -> bool:
        """Whether the result is queries times keys up to a factor, or weights times values."""
        return self.sums_values or (self.factors is not None and self.factors.is_plain)

    @property
    def arities(self) -> tuple[int, ...]:
        """The possible numbers of operands, ascending."""
        return tuple(sorted({len(signature.inputs) for signature in self.signatures}))

    def defaults(self) -> dict[str, ParamValue]:
        """Return all parameters at their defaults."""
        return {name: domain.default for name, domain in self.parameters.items()}

    def full(self, params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """Return ``params`` together with the defaults of all parameters that it does not set."""
        return self.defaults() | dict(params)


# The stream that an operand usually reads, by the operand's name.
STREAM_OF_PORT: Final = {"query": "q", "key": "k", "values": "v"}

REGISTRY: Final[Registry[Primitive]] = Registry(
    "primitive",
    "nas.primitives",
    modules=tuple(
        f"nas.genome.primitives.{module.name}"
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
    ),
    error=GenomeError,
)


def primitive(
    name: str, *signatures: str, role: Role | tuple[Role, ...], **declared: Any
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Return a decorator that registers a module class as a primitive.

    Args:
        signatures: types such as "query: tokens[h,w], key: tokens[h,w] -> scores[h]". The first
            signature that matches a node's operands applies.
        role: one role, or a tuple with a role for each signature.
        declared: further fields of ``Primitive``.

    Raises:
        GenomeError: another primitive has the same name, or a class of the same name.
    """

    def register(module: type[nn.Module]) -> type[nn.Module]:
        # Generated sources refer to classes by name.
        for entry in REGISTRY.registered.values():
            if entry.module.__name__ == module.__name__:
                raise GenomeError(
                    f"{entry.name} and {name} both have a class {module.__name__}; expected one"
                )
        roles = role if isinstance(role, tuple) else (role,) * len(signatures)
        parsed = tuple(parse_signature(s, r) for s, r in zip(signatures, roles, strict=True))
        REGISTRY.register(name)(Primitive(name=name, module=module, signatures=parsed, **declared))
        return module

    return register


_PORT = re.compile(r"(?:(\w+):\s*)?(tokens|scores|weights)\[h(?:,(\w))?\]")


def parse_signature(text: str, role: Role) -> Signature:
    """Parse a signature such as "a: tokens[h,w], b: tokens[h,w] -> scores[h]".

    A malformed signature fails an assertion.
    """
    left, arrow, right = text.partition("->")
    ports = [_port(match) for match in _PORT.finditer(left)]
    result = _PORT.fullmatch(right.strip())
    assert arrow and ports and result, f"expected 'operands -> result'; found {text}"  # noqa: PT018
    return Signature(tuple(ports), _port(result), role)


def _port(match: re.Match[str]) -> Port:
    name, kind, width = match.groups()
    assert (width is not None) == (kind == "tokens"), f"tokens alone have a width: {match[0]}"
    return Port(name or "result", Kind(kind), width)
