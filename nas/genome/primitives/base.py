"""What a primitive is: a role, typed ports, parameters and a torch module, declared together.

    @primitive("softmax", "scores: scores[h] -> weights[h]", role=Role.NORMALIZE, ...)
    class Softmax(nn.Module): ...

The decorator registers the class and returns it unchanged, so that its source can be read,
trained and inlined into an exported file as it stands. A module sees operands that share one
head count; the compiler repeats the fewer heads before the call.

Sizes reach ``__init__`` by name, as far as it asks for them: ``dim`` (model width), ``heads``
(of the operands), ``width`` (of the operands bound to ``w``; ``head_width`` says the same where
a parameter is called width), ``rank`` (the width that scores are scaled by: that of the operands,
but the head width where they hold whole tokens, as patterns do), ``bias`` (the task's
``qkv_bias``), ``filtered`` (whether a filter before it may have excluded keys). Beside its
operands ``forward`` may ask by name for ``x`` (the block's input, shape b n d) and ``mask``
(bool, broadcastable to b h q k, True where attention is allowed, or None), and take ``start``, the
position of its first token (of its first query, counted from the first key), where it is called
with a part of the sequence. A class whose result at one token needs all others at once (it mixes
neighbours, or knows places by number) says ``needs_all_tokens = True`` and is given no parts.
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
from nas.genome.primitives.domains import Domain
from nas.genome.primitives.factors import Factors, ScoreChange, SignRule, Weights, unknown_sign

if TYPE_CHECKING:
    from torch import nn

    from nas.genome import ParamValue

Params = Mapping[str, Any]


class Role(StrEnum):
    """What an operation does in a mechanism; the words of a policy."""

    TRANSFORM = "transform"  # tokens to tokens, content only
    POSITION = "position"  # tokens to tokens, by where they stand
    SCORE = "score"  # token streams, and scores, to scores
    ADJUST = "adjust"  # scores to scores, or weights to weights
    NORMALIZE = "normalize"  # scores to weights
    AGGREGATE = "aggregate"  # weights and values to tokens
    GATE = "gate"  # tokens to tokens, scaled by a learned gate


class Kind(StrEnum):
    """What a tensor holds: tokens (b h n w), scores or weights (b h q k)."""

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
    """One reading of a primitive: operands, result and the role it plays in that reading."""

    inputs: tuple[Port, ...]
    output: Port
    role: Role


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes at which a node runs: what its closed formula for MACs is written in.

    Attributes:
        tokens: those that are keys; all of them, outside a window's blocks.
        rows: those that are queries, where they are others; None for as many.
        allowed: pairs of query and key that have a score; None for all.
    """

    dim: int
    heads: int
    width: int
    tokens: int
    rows: int | None = None
    allowed: int | None = None

    @property
    def queries(self) -> int:
        """Tokens that are queries."""
        return self.tokens if self.rows is None else self.rows

    @property
    def both(self) -> int:
        """Queries and keys together."""
        return self.queries + self.tokens

    @property
    def pairs(self) -> int:
        """Pairs of query and key that have a score."""
        return self.queries * self.tokens if self.allowed is None else self.allowed


def pair_macs(sizes: Sizes, params: Params) -> int:
    """Of one product of the operands' width for each pair."""
    return sizes.heads * sizes.pairs * sizes.width


def map_macs(sizes: Sizes, params: Params) -> int:
    """Of one map of each token's features."""
    return sizes.heads * sizes.tokens * sizes.width**2


@dataclass(frozen=True)
class Primitive:
    """A registered operation.

    Attributes:
        notation: mathematics with port names and parameters in braces, "softmax({scores})".
        commutes: whether the operands of the first two ports may change places.
        is_causal_safe: whether, given the causal mask, no output depends on a later token.
        check: raises ``ValueError`` for parameters that exclude each other.
        caution: what a person should know before they train these parameters; None for nothing.
        macs: multiply-adds of one call at batch 1, in closed form.
        passes: how often a call passes over its pairs (or tokens), about; more than 1 where each
            hidden unit is a pass.
        is_stateful: whether a call in training changes the module, so that there must be one.
        reach: of how many tokens before its own a result reads its one input, where the class needs
            all tokens; None where that has no bound.
        unread: the ports and the parameters that have no effect, given the parameters; of what
            such a port is fed with only the shape matters.
        derived: parameters that a genome's normal form sets, which no space has to list.
        least_heads: the label of the heads that the result has at least.
        factors: how scores of queries and keys are products of features; None where they are not.
        score_change: how scores that are changed stay products; None where they do not.
        weights: which of the known weights a normaliser's are, given the parameters; None for
            others.
        sums_values: whether the result is the weights times the values.
        homogeneous: the ports p with f(2 p) = 2 f(p), parameters and other operands fixed.
        is_additive: whether f(p) + f(q) = f(p + q) holds for each of those ports too.
        is_featurewise: whether each feature of the result depends on the same feature of the
            operands, and on weights that all heads share, in the same way for every feature and
            however features are cut into heads.
        sign: what is provable of the result's sign, from the operands' signs.
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
        # A declared parameter called width is the genome's to say, not the operands'.
        sizes = tuple(n for n in size_names if n in init_parameters and n not in self.parameters)
        called = inspect.signature(self.module.forward).parameters
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "extras", tuple(n for n in ("x", "mask") if n in called))
        # A module that is told no size can hold no size-dependent weights; where that says too
        # little (scalars) or too much (a size that is only checked), the class says it.
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
        """Whether it multiplies two operands as they are: queries by keys, or weights by values."""
        return self.sums_values or (self.factors is not None and self.factors.is_plain)

    @property
    def arities(self) -> tuple[int, ...]:
        """The numbers of operands that some signature takes."""
        return tuple(sorted({len(signature.inputs) for signature in self.signatures}))

    def defaults(self) -> dict[str, ParamValue]:
        """Every parameter at its default."""
        return {name: domain.default for name, domain in self.parameters.items()}

    def full(self, params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """All parameters: those given over the defaults."""
        return self.defaults() | dict(params)


# The stream that a port is usually fed with, by the port's name.
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
        signatures: such as "query: tokens[h,w], key: tokens[h,w] -> scores[h]"; several where
            the primitive works on several kinds, tried in order.
        role: one role, or one for each signature.
        declared: further fields of ``Primitive``.

    Raises:
        GenomeError: another primitive has this name, or a class of this name.
    """

    def register(module: type[nn.Module]) -> type[nn.Module]:
        # Generated sources know a class by its name alone.
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
    """Read "a: tokens[h,w], b: tokens[h,w] -> scores[h]"."""
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
