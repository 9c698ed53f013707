"""The declaration of primitives: role, typed operands, parameters and a torch module.

    @primitive("softmax", "scores: scores[h] -> weights[h]", role=Role.NORMALIZE, ...)
    class Softmax(nn.Module): ...

The decorator registers the class and returns it unchanged, because exported files copy its source.
All operands of a call have the same number of heads; the compiler repeats heads where needed.

The compiler passes to ``__init__`` each of these values for which it has an argument:

- ``dim``: model width.
- ``heads``: number of heads of the operands.
- ``width``: width of the operands that the signature calls ``w``. If the primitive has a parameter
  named ``width``, this size is passed as ``head_width``.
- ``rank``: number r for scores that are divided by sqrt(r). It is the width of the operands, or the
  head width if the operands have model width, as in Patterns.
- ``bias``: whether linear maps of ``x`` have a bias (``qkv_bias`` of the training task).
- ``filtered``: whether an earlier filter may have set scores to -inf.

``forward`` receives the operands, and each of these values for which it has an argument:

- ``x``: the attention block's input, shape (b, n, d).
- ``mask``: bool, broadcastable to (b, h, q, k), True where attention is allowed; or None.
- ``start``: position of the first token of the operands, if they are a part of the sequence. For
  operands that are scores, it is the position of the first query relative to the first key. It is a
  number, or a tensor of shape () in a swapped model whose cache has a fixed size.

A class that mixes tokens or uses absolute indices sets ``needs_all_tokens = True``, and ``forward``
is never called with a part of the sequence. If it mixes tokens with earlier tokens only, the
primitive may declare how many numbers a cache holds to continue a sequence (``Primitive.state``).
A class on tokens that reads the mask only to find tokens that no query sees, or queries that see no
token, sets ``reads_hidden_tokens = True``. Its ``mask`` is None where only later tokens are hidden.
A class that uses absolute indices of keys sets ``needs_all_keys = True``; it is called with all
keys, and with ``start`` for a part of the queries.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from inspect import Parameter
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nas.common.errors import GenomeError
from nas.common.registry import Registry
from nas.genome import ParamValue
from nas.genome.primitives.domains import Domain
from nas.genome.primitives.signs import SignRule, unknown_sign

if TYPE_CHECKING:
    from torch import nn

Params = Mapping[str, Any]


class Role(StrEnum):
    """The purpose of an operation in a mechanism, to which the validator's path rules refer."""

    TRANSFORM = "transform"  # tokens to tokens, content only
    POSITION = "position"  # tokens to tokens, by position
    FORGET = "forget"  # tokens to forget gates
    SCORE = "score"  # tokens, or tokens and scores, to scores
    ADJUST = "adjust"  # scores to scores, or weights to weights
    NORMALIZE = "normalize"  # scores to weights
    AGGREGATE = "aggregate"  # weights and values to tokens
    GATE = "gate"  # tokens to tokens, multiplied by a learned gate


class Kind(StrEnum):
    """The content of a tensor.

    Tokens are (b, h, n, w); scores and weights (b, h, q, k). Gates are the logarithms of forget
    gates, which lie between 0 and 1, summed over all tokens up to each token: one number per head,
    (b, h, n, 1), or one per feature of a head, (b, h, n, w).
    """

    TOKENS = "tokens"
    SCORES = "scores"
    WEIGHTS = "weights"
    GATES = "gates"
    FEATURE_GATES = "feature_gates"

    @property
    def is_paired(self) -> bool:
        """Whether there is an element for each pair of a query and a key."""
        return self in (Kind.SCORES, Kind.WEIGHTS)

    @property
    def is_gates(self) -> bool:
        """Whether the elements are summed logarithms of forget gates."""
        return self in (Kind.GATES, Kind.FEATURE_GATES)


class Port(NamedTuple):
    """A named operand or result of a primitive.

    Ports of a signature with the same ``width``, such as "w" in "tokens[h,w]", have equal widths.
    Scores, weights, and gates of a head have none.
    """

    name: str
    kind: Kind
    width: str | None

    def __str__(self) -> str:
        return f"{self.kind}[h{f',{self.width}' if self.width else ''}]"

    @property
    def is_query(self) -> bool:
        """Whether an operation on pairs needs this operand at the tokens of the queries only."""
        return self.name in ("query", "query_gates")

    @property
    def is_past(self) -> bool:
        """Whether an operation on pairs needs this operand at all keys, not only at new tokens."""
        return self.name in ("key", "values", "key_gates")


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a primitive's operands and result, and the role of a node with these types."""

    inputs: tuple[Port, ...]
    output: Port
    role: Role

    def __str__(self) -> str:
        operands = ", ".join(f"{port.name}: {port}" for port in self.inputs)
        return f"{operands} -> {self.output}"

    @property
    def is_paired(self) -> bool:
        """Whether an operand or the result has an element for each pair of query and key."""
        return any(port.kind.is_paired for port in (*self.inputs, self.output))

    def arguments(self) -> Iterator[tuple[int, Port]]:
        """Yield the port of each argument of ``forward``, with the index of its operand.

        An operation on pairs of query and key receives gates twice: at the queries, and at the
        keys. The two arguments differ if queries or keys are a part of the sequence.
        """
        for index, port in enumerate(self.inputs):
            is_double = self.is_paired and port.kind.is_gates
            names = ("query_gates", "key_gates") if is_double else (port.name,)
            yield from ((index, port._replace(name=name)) for name in names)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one call of a node: of its operands, and the model width ``dim``.

    ``gates`` is the number of forget gates per head and token, or 1 if no operand has gates.
    """

    dim: int
    heads: int
    width: int
    tokens: int
    gates: int = 1


SIZES: Final = ("dim", "heads", "width", "head_width", "rank", "bias", "filtered")
_NAMED_ARGUMENTS: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Primitive:
    """A registered operation: its name, torch module, signatures and declared properties.

    Properties that depend on a node's parameters are functions of all parameters, with defaults.

    Attributes:
        notation: formula with the names of operands and parameters in braces, such as
            "softmax({scores})".
        source: paper and equation that define the operation.
        commutes: whether exchanging the first two operands does not change the result.
        is_causal_safe: returns whether, under a causal mask, no output depends on a later token.
        check: raises ``ValueError`` for parameters that exclude each other, and returns a warning
            about training with these parameters, or None.
        elementwise: names of torch operations, such as "aten::special_ndtr", that the cost
            ``elementwise`` counts by their elements. Operations that torch tags as pointwise need
            no declaration.
        state: returns how many numbers the cache of a decoder holds to continue a sequence; None if
            the result depends on the operands at all earlier tokens, which the cache then holds.
            Used only if ``needs_all_tokens`` is true.
        unread: returns the names of parameters that have no effect, and of operands of which only
            the shape has an effect.
        plain: returns equal parameters in normal form at the sizes of a call; None if the result of
            the call is its first operand.
        least_heads: the parameter whose value, a head label, is a lower bound on the head count of
            the result; None without such a parameter.
        is_featurewise: returns whether cutting one head into several preserves the function, and
            the shapes and initial distribution of the weights: a feature of the result depends only
            on the same feature of the operands, on the block's input, and on weights of this
            feature or of all features.
        sign: returns the provable sign of the result, given the signs of the operands.
    """

    name: str
    module: type[nn.Module]
    signatures: tuple[Signature, ...]
    notation: str
    source: str
    parameters: Mapping[str, Domain] = field(default_factory=dict)
    commutes: bool = False
    is_causal_safe: Callable[[Params], bool] = lambda params: True
    check: Callable[[Params], str | None] = lambda params: None
    elementwise: tuple[str, ...] = ()
    state: Callable[[Sizes, Params], int | None] = lambda sizes, params: None
    unread: Callable[[Params], tuple[str, ...]] = lambda params: ()
    plain: Callable[[Params, Sizes], Params | None] = lambda params, sizes: params
    least_heads: str | None = None
    is_featurewise: Callable[[Params], bool] = lambda params: False
    sign: SignRule = unknown_sign

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The names of the values, such as ``dim``, that the module's ``__init__`` receives."""
        arguments = inspect.signature(self.module.__init__).parameters
        # A declared parameter named width comes from the genome, not from the operands.
        return tuple(n for n in SIZES if n in arguments and n not in self.parameters)

    @cached_property
    def extras(self) -> tuple[str, ...]:
        """The names of those of the values ``x`` and ``mask`` that ``forward`` receives."""
        return tuple(name for name in ("x", "mask") if name in self._called)

    @cached_property
    def is_positional(self) -> bool:
        """Whether ``forward`` receives ``start``."""
        return "start" in self._called

    @cached_property
    def is_parametric(self) -> bool:
        """Whether the module has learned parameters.

        A class with scalar weights, or with a size that it only checks, sets ``has_parameters``.
        """
        is_sized = bool(set(self.sizes) - {"rank", "filtered"})
        return bool(getattr(self.module, "has_parameters", is_sized))

    @property
    def is_filter(self) -> bool:
        """Whether a score of -inf in the result excludes a key."""
        return self._has("is_filter")

    @property
    def needs_all_tokens(self) -> bool:
        """Whether every call needs the whole sequence."""
        return self._has("needs_all_tokens")

    @property
    def needs_all_keys(self) -> bool:
        """Whether every call needs all keys, though not all queries."""
        return self._has("needs_all_keys")

    @property
    def reads_hidden_tokens(self) -> bool:
        """Whether a call on tokens needs no mask where only later tokens are hidden."""
        return self._has("reads_hidden_tokens")

    def _has(self, flag: str) -> bool:
        return bool(getattr(self.module, flag, False))

    @cached_property
    def derived(self) -> tuple[str, ...]:
        """The parameters that only simplification sets: head counts of results that read shapes."""
        reads_shapes = bool(self.unread(self.defaults()))
        return (self.least_heads,) if self.least_heads and reads_shapes else ()

    @cached_property
    def _called(self) -> Mapping[str, Parameter]:
        return inspect.signature(self.module.forward).parameters

    @property
    def about(self) -> str:
        """A one-line description: the first line of the docstring of the torch module's class."""
        return (inspect.getdoc(self.module) or "").split("\n", 1)[0]

    @property
    def arities(self) -> tuple[int, ...]:
        """The numbers of operands that a node with this primitive may have, ascending."""
        return tuple(sorted({len(each.inputs) for each in self.signatures}))

    def defaults(self) -> dict[str, ParamValue]:
        """Return the default value of each parameter of the primitive."""
        return {name: domain.default for name, domain in self.parameters.items()}

    def full(self, params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
        """Return ``params`` together with the defaults of all other parameters."""
        return self.defaults() | dict(params)


# Attributes of module classes that declare facts; exported files do not contain them.
CLASS_FLAGS: Final = (
    *("has_parameters", "is_filter", "is_traceable"),
    *("needs_all_keys", "needs_all_tokens", "reads_hidden_tokens"),
)

# The stream that an operand usually reads, by the operand's name.
STREAM_OF_PORT: Final = {"query": "q", "key": "k", "keys": "k", "values": "v"}

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
            signature that matches the operands of a node applies to this node.
        role: one role for all signatures, or a tuple with a role for each signature.
        declared: values of other fields of ``Primitive``.

    Raises:
        GenomeError: the name or the class name is taken, a declaration is malformed or incomplete,
            or ``__init__`` or a normaliser's ``forward`` has unexpected arguments.
    """

    def register(module: type[nn.Module]) -> type[nn.Module]:
        # Generated sources refer to classes by name.
        for entry in REGISTRY.registered.values():
            if entry.module.__name__ == module.__name__:
                raise GenomeError(
                    f"{entry.name} and {name} both have a class {module.__name__}; expected one"
                )
        roles = role if isinstance(role, tuple) else (role,) * len(signatures)
        try:
            parsed = tuple(parse_signature(s, r) for s, r in zip(signatures, roles, strict=True))
            made = Primitive(name=name, module=module, signatures=parsed, **declared)
            _check_names(made)
        except (AssertionError, TypeError, ValueError) as error:
            raise GenomeError(f"{name}: {error}") from None
        if Role.NORMALIZE in roles and "mask" not in made.extras:
            raise GenomeError(
                f"{name}: forward of a normaliser has no argument mask; expected mask=None, and "
                "weights of zero at hidden keys (nas.genome.primitives.masks.hide)"
            )
        REGISTRY.register(name)(made)
        return module

    return register


def _check_names(made: Primitive) -> None:
    operands = {port.name for signature in made.signatures for port in signature.inputs}
    known = operands | made.parameters.keys()
    written = {name for _, name, _, _ in Formatter().parse(made.notation) if name}
    arguments = [*inspect.signature(made.module.__init__).parameters.values()][1:]
    needed = {a.name for a in arguments if a.default is a.empty and a.kind in _NAMED_ARGUMENTS}
    for part, names, expected in (
        ("notation", written, known),
        ("__init__ of its class", needed, {*SIZES, *made.parameters}),
    ):
        if names - expected:
            raise GenomeError(
                f"{made.name}: {part} has {', '.join(sorted(names - expected))}; "
                f"expected only names among {', '.join(sorted(expected))}"
            )


_PORT = re.compile(r"(?:(\w+):\s*)?(tokens|scores|weights|gates|feature_gates)\[h(?:,(\w))?\]")


def parse_signature(text: str, role: Role) -> Signature:
    """Parse the text of a signature, such as "a: tokens[h,w], b: tokens[h,w] -> scores[h]".

    Raises:
        AssertionError: the text is malformed.
    """
    left, arrow, right = text.partition("->")
    ports = [_port(match) for match in _PORT.finditer(left)]
    result = _PORT.fullmatch(right.strip())
    assert arrow and ports and result, f"expected 'operands -> result'; found {text}"  # noqa: PT018
    return Signature(tuple(ports), _port(result), role)


def _port(match: re.Match[str]) -> Port:
    name, kind, width = match.groups()
    has_width = Kind(kind) in (Kind.TOKENS, Kind.FEATURE_GATES)
    assert (width is not None) == has_width, f"tokens and feature gates have a width: {match[0]}"
    return Port(name or "result", Kind(kind), width)
