"""Primitives: a role, typed ports, parameters and a torch module, declared together.

    @primitive("softmax", "scores: scores[h] -> weights[h]", role=Role.NORMALIZE, ...)
    class Softmax(nn.Module): ...

The decorator registers the class and returns it unchanged, so that its source can be trained and
copied into an exported file. All operands of a call have the same head count; the compiler repeats
the fewer heads before the call.

``__init__`` may declare size arguments: ``dim`` (model width), ``heads`` (of the operands),
``width`` (of the operands bound to ``w``; ``head_width`` if a parameter is named width), ``rank``
(the width whose root scales scores: the operands' width, or the head width if they hold whole
tokens, as in Patterns), ``bias`` (the task's ``qkv_bias``), ``filtered`` (whether an earlier filter
may have excluded keys). Beside its operands ``forward`` may declare ``x`` (the block's input, shape
b n d), ``mask`` (bool, broadcastable to b h q k, True where attention is allowed, or None), and
``start``: the position of its first token (for scores: of its first query relative to the first
key) when it is called with a part of the sequence. A class whose result at one token needs all
tokens at once (it mixes neighbours or uses absolute indices) sets ``needs_all_tokens = True`` and
is never called with parts.
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
    """The function of an operation in a mechanism; policies refer to roles."""

    TRANSFORM = "transform"  # tokens to tokens, content only
    POSITION = "position"  # tokens to tokens, by position
    SCORE = "score"  # tokens, or tokens and scores, to scores
    ADJUST = "adjust"  # scores to scores, or weights to weights
    NORMALIZE = "normalize"  # scores to weights
    AGGREGATE = "aggregate"  # weights and values to tokens
    GATE = "gate"  # tokens to tokens, scaled by a learned gate


class Kind(StrEnum):
    """The content of a tensor: tokens (b h n w), scores or weights (b h q k)."""

    TOKENS = "tokens"
    SCORES = "scores"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True)
class Port:
    """A named operand; ``width`` is the letter that its width is bound to, for tokens."""

    name: str
    kind: Kind
    width: str | None


@dataclass(frozen=True, slots=True)
class Signature:
    """Typed operands and result of a primitive, and its role with these types."""

    inputs: tuple[Port, ...]
    output: Port
    role: Role


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes at which a node runs: the variables of its closed formula for MACs.

    Attributes:
        tokens: number of keys; within a window's block only those of the block.
        rows: number of queries; None if it equals ``tokens``.
        allowed: number of pairs of query and key with a score; None for all.
    """

    dim: int
    heads: int
    width: int
    tokens: int
    rows: int | None = None
    allowed: int | None = None

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.tokens if self.rows is None else self.rows

    @property
    def both(self) -> int:
        """The number of queries plus the number of keys."""
        return self.queries + self.tokens

    @property
    def pairs(self) -> int:
        """Number of pairs of query and key with a score."""
        return self.queries * self.tokens if self.allowed is None else self.allowed


def pair_macs(sizes: Sizes, params: Params) -> int:
    """MACs of one dot product per pair and head."""
    return sizes.heads * sizes.pairs * sizes.width


def map_macs(sizes: Sizes, params: Params) -> int:
    """MACs of one linear map per token and head."""
    return sizes.heads * sizes.tokens * sizes.width**2


@dataclass(frozen=True)
class Primitive:
    """A registered operation.

    Attributes:
        notation: mathematics with port names and parameters in braces, "softmax({scores})".
        commutes: whether exchanging the first two operands keeps the result.
        is_causal_safe: whether, under the causal mask, no output depends on a later token.
        check: raises ``ValueError`` for parameters that exclude each other.
        caution: a warning about training with these parameters, or None.
        macs: multiply-adds of one call at batch 1, in closed form.
        passes: approximate number of passes of a call over its pairs (or tokens); more than 1 if
            each hidden unit is a pass.
        is_stateful: whether a call in training mode changes the module.
        reach: for a class that needs all tokens, the number of earlier tokens that a result
            depends on; None if it is unbounded.
        unread: the ports and parameters without effect, given the parameters; only the shape of
            such an operand matters.
        derived: parameters that the normal form sets; a space need not list them.
        least_heads: the label of the smallest head count of the result.
        factors: the scores as products of query and key features; None if they are no products.
        score_change: the change of scores that keeps them products; None if there is none.
        weights: the kind of a normaliser's weights, given the parameters; None for other kinds.
        sums_values: whether the result is the weights times the values.
        homogeneous: the ports p with f(2 p) = 2 f(p), parameters and other operands fixed.
        is_additive: whether f(p) + f(q) = f(p + q) also holds for each of these ports.
        is_featurewise: whether each feature of the result depends only on the same feature of the
            operands and on weights that all heads share, equally for all features and for every
            division of the features into heads.
        sign: the provable sign of the result, from the signs of the operands.
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
        init_parameters = inspect.signature(self.module.__init__).parameters
        size_names = ("dim", "heads", "width", "head_width", "rank", "bias", "filtered")
        # A declared parameter named width comes from the genome, not from the operands.
        sizes = tuple(n for n in size_names if n in init_parameters and n not in self.parameters)
        called = inspect.signature(self.module.forward).parameters
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "extras", tuple(n for n in ("x", "mask") if n in called))
        # A module without size arguments has no size-dependent weights. A class with scalar
        # weights, or with a size that it only checks, sets ``has_parameters``.
        sized = bool(set(sizes) - {"rank", "filtered"})
        learns = bool(getattr(self.module, "has_parameters", sized))
        object.__setattr__(self, "is_parametric", learns)
        object.__setattr__(self, "is_positional", "start" in called)
        object.__setattr__(
            self, "needs_all_tokens", bool(getattr(self.module, "needs_all_tokens", False))
        )

    @property
    def about(self) -> str:
        """The first line of the module's docstring."""
        return (inspect.getdoc(self.module) or "").split("\n", 1)[0]

    @property
    def is_plain_product(self) -> bool:
        """Whether the result is a plain product: queries by keys, or weights by values."""
        return self.sums_values or (self.factors is not None and self.factors.is_plain)

    @property
    def arities(self) -> tuple[int, ...]:
        """The numbers of operands of the signatures, ascending."""
        return tuple(sorted({len(signature.inputs) for signature in self.signatures}))

    def defaults(self) -> dict[str, ParamValue]:
        """Every parameter at its default."""
        return {name: domain.default for name, domain in self.parameters.items()}

    def full(self, params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """All parameters: ``params``, and the defaults of the others."""
        return self.defaults() | dict(params)


# The usual stream of a port, by the port's name.
STREAM_OF_PORT: Final = {"query": "q", "key": "k", "values": "v"}

REGISTRY: Final[Registry[Primitive]] = Registry(
    "primitive",
    "nas.primitives",
    modules=tuple(
        f"nas.genome.primitives.{found.name}"
        for found in pkgutil.iter_modules([str(Path(__file__).parent)])
    ),
    error=GenomeError,
)


def primitive(
    name: str, *signatures: str, role: Role | tuple[Role, ...], **declared: Any
) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Register a module class as a primitive; see the module docstring.

    Args:
        signatures: such as "query: tokens[h,w], key: tokens[h,w] -> scores[h]"; a primitive of
            several kinds has several, matched in order.
        role: one role, or one for each signature.
        declared: further fields of ``Primitive``.

    Raises:
        GenomeError: another primitive has this name, or a class of this name.
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
    """Parse a signature such as "a: tokens[h,w], b: tokens[h,w] -> scores[h]"."""
    left, arrow, right = text.partition("->")
    ports = [_port(match) for match in _PORT.finditer(left)]
    result = _PORT.fullmatch(right.strip())
    assert arrow, f"no arrow in the signature {text}"
    assert ports, f"no operands in the signature {text}"
    assert result, f"no result in the signature {text}"
    return Signature(tuple(ports), _port(result), role)


def _port(match: re.Match[str]) -> Port:
    name, kind, width = match.groups()
    assert (width is not None) == (kind == "tokens"), f"tokens alone have a width: {match[0]}"
    return Port(name or "result", Kind(kind), width)
