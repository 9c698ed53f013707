"""The declaration of primitives: role, typed operands, parameters and a torch module.

    @primitive("softmax", "scores: scores[h] -> weights[h]", role=Role.NORMALIZE, ...)
    class Softmax(nn.Module): ...

The decorator registers the class and returns it unchanged, because exported files copy its source.
All operands of a call have the same number of heads; the compiler repeats heads where needed.

``__init__`` receives those of these values for which it has an argument:

- ``dim``, ``heads``, ``width``: model width, heads of the operands, width of the operands that the
  signature calls ``w`` (``head_width`` if the primitive has a parameter named ``width``).
- ``rank``: number r for scores that are divided by sqrt(r). It is the width of the operands, or the
  head width if the operands have model width, as in Patterns.
- ``bias``: whether linear maps of ``x`` have a bias (``qkv_bias`` of the training task).
- ``filtered``: whether an earlier filter may have set scores to -inf.

``forward`` receives the operands, and those of these values for which it has an argument:

- ``x``: the attention block's input, shape (b, n, d).
- ``mask``: bool, broadcastable to (b, h, q, k), True where attention is allowed; or None.
- ``start``: position of the first token of the operands, if they are a part of the sequence; for
  scores, of the first query relative to the first key. A number, or a tensor of shape ().

Flags of the class (False by default) declare what ``forward`` needs:

- ``needs_all_tokens``: the whole sequence, as the class mixes tokens or uses absolute indices.
- ``needs_all_keys``: all keys, with ``start`` for a part of the queries, as the class uses absolute
  indices of keys.
- ``reads_hidden_tokens``: the mask only to find tokens that no query sees, or queries that see no
  token. The mask is None where only later tokens are hidden.
- ``is_filter``: nothing; a score of -inf in the result excludes a key.
- ``has_parameters``: nothing; overrides the guess that a class with a size has learned parameters.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nas.common.errors import GenomeError
from nas.common.registry import Registry
from nas.genome import LABELS, ParamValue
from nas.genome.primitives.domains import Choice, Domain
from nas.genome.primitives.signs import SignRule, unknown_sign

if TYPE_CHECKING:
    from torch import Tensor, nn

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

    Tokens are (b, h, n, w), scores and weights (b, h, q, k). Gates are logarithms of forget gates
    between 0 and 1, summed up to each token: (b, h, n, 1) for gates of a head, and (b, h, n, w) for
    gates of each feature.
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
    """A named operand or result of a primitive; equal ``width`` letters mean equal widths.

    Scores, weights, and gates of a head have no width.
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

        An operation on pairs receives gates twice, at the queries and at the keys.
        """
        for index, port in enumerate(self.inputs):
            is_double = self.is_paired and port.kind.is_gates
            names = ("query_gates", "key_gates") if is_double else (port.name,)
            yield from ((index, port._replace(name=name)) for name in names)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a call: model width ``dim``, and those of its operands.

    ``gates`` is the number of forget gates per head and token, or 1 if no operand has gates.
    """

    dim: int
    heads: int
    width: int
    tokens: int
    gates: int = 1


LEAST_HEADS: Final = Choice(default="one", values=tuple(reversed(LABELS["q_heads"])))
SIZES: Final = ("dim", "heads", "width", "head_width", "rank", "bias", "filtered")


def always(params: Params) -> bool:
    """Return True, as a property of a primitive that holds for all parameters."""
    return True


def _class_flag(name: str) -> property:
    return property(lambda entry: bool(getattr(entry.module, name, False)))


@dataclass(frozen=True)
class Primitive:
    """A registered operation: its name, torch module, signatures and declared properties.

    Functions of ``Params`` receive all parameters of a node, with defaults.

    Attributes:
        notation: formula with operands and parameters in braces, such as "softmax({scores})".
        source: paper and equation that define the operation.
        commutes: whether exchanging the first two operands does not change the result.
        is_causal_safe: returns whether, under a causal mask, no output depends on a later token.
        check: raises ``ValueError`` for parameters that exclude each other.
        elementwise: torch operations, such as "aten::special_ndtr", that the cost ``elementwise``
            counts by their elements although torch does not tag them as pointwise.
        history: returns how many earlier tokens of its operands a result depends on, if the class
            needs all tokens, and sums of gates begin at the first of these tokens; None for all.
        state: returns how many numbers a cache holds to continue a sequence, if ``history`` is
            None; None if the cache holds the operands at all earlier tokens.
        recur: the recurrence of the class, if it has a state: a function of the module, the state
            (None before the first token) and the new tokens' arguments of ``forward``, with sums of
            gates that begin at these tokens. It returns the result and the next state, a tensor.
        unread: returns the names of parameters without effect, and of operands of which only the
            shape has an effect.
        plain: returns equal parameters in normal form at the sizes of a call; None if the result of
            the call is its first operand.
        is_featurewise: returns whether a feature of the result depends only on the same feature of
            the operands, on x, and on weights of this feature or of all features, so that cutting
            a head into several preserves the function, and the weights' initial distribution.
        sign: returns the provable sign of the result, given the signs of the operands.
    """

    name: str
    module: type[nn.Module]
    signatures: tuple[Signature, ...]
    notation: str
    source: str
    parameters: Mapping[str, Domain] = field(default_factory=dict)
    commutes: bool = False
    is_causal_safe: Callable[[Params], bool] = always
    check: Callable[[Params], None] = lambda params: None
    elementwise: tuple[str, ...] = ()
    history: Callable[[Params], int | None] = lambda params: None
    state: Callable[[Sizes, Params], int | None] = lambda sizes, params: None
    recur: Callable[..., tuple[Tensor, Tensor]] | None = None
    unread: Callable[[Params], tuple[str, ...]] = lambda params: ()
    plain: Callable[[Params, Sizes], Params | None] = lambda params, sizes: params
    is_featurewise: Callable[[Params], bool] = lambda params: False
    sign: SignRule = unknown_sign

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The names among ``SIZES`` that the module's ``__init__`` receives."""
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
        """Whether the module has learned parameters."""
        is_sized = bool(set(self.sizes) - {"rank", "filtered"})
        return bool(getattr(self.module, "has_parameters", is_sized))

    is_filter = _class_flag("is_filter")
    needs_all_tokens = _class_flag("needs_all_tokens")
    reads_hidden_tokens = _class_flag("reads_hidden_tokens")

    @cached_property
    def least_heads(self) -> str | None:
        """The parameter with domain ``LEAST_HEADS``, a lower bound on the result's head count."""
        names = (name for name, domain in self.parameters.items() if domain is LEAST_HEADS)
        return next(names, None)

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
        """The first line of the docstring of the module's class."""
        return (inspect.getdoc(self.module) or "").split("\n", 1)[0]

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


Decorator = Callable[[type["nn.Module"]], type["nn.Module"]]


def primitive(
    name: str, *signatures: str, role: Role | tuple[Role, ...], **declared: Any
) -> Decorator:
    """Return a decorator that registers a module class as a primitive.

    Args:
        signatures: types such as "query: tokens[h,w], key: tokens[h,w] -> scores[h]". The first
            signature that matches the operands of a node applies to this node.
        role: one role for all signatures, or a tuple with a role for each signature.
        declared: values of other fields of ``Primitive``.

    Raises:
        GenomeError: the name is taken, a signature is malformed, or ``forward`` of a normaliser
            has no argument ``mask``.
    """

    def register(module: type[nn.Module]) -> type[nn.Module]:
        roles = role if isinstance(role, tuple) else (role,) * len(signatures)
        parsed = tuple(_signature(name, s, r) for s, r in zip(signatures, roles, strict=True))
        made = Primitive(name=name, module=module, signatures=parsed, **declared)
        if Role.NORMALIZE in roles and "mask" not in made.extras:
            raise GenomeError(
                f"{name}: forward of a normaliser has no argument mask; expected mask=None, and "
                "weights of zero at hidden keys (nas.genome.primitives.tensors.hide)"
            )
        REGISTRY.register(name, module.__module__)(made)
        return module

    return register


def _family(signature: str, usual_role: Role) -> Callable[..., Decorator]:
    """Return a function like ``primitive`` for primitives that share a signature."""

    def declare(
        name: str, notation: str, source: str, *, role: Role = usual_role, **declared: Any
    ) -> Decorator:
        texts = {"notation": notation, "source": source}
        return primitive(name, signature, role=role, **texts, **declared)

    return declare


token_map = _family("tokens: tokens[h,w] -> tokens[h,w]", Role.TRANSFORM)
pair_score = _family("query: tokens[h,w], key: tokens[h,w] -> scores[h]", Role.SCORE)
score_change = _family("scores: scores[h] -> scores[h]", Role.ADJUST)
normaliser = _family("scores: scores[h] -> weights[h]", Role.NORMALIZE)


_PORT = re.compile(r"(?:(\w+):\s*)?(tokens|scores|weights|gates|feature_gates)\[h(?:,(\w))?\]")


def _signature(name: str, text: str, role: Role) -> Signature:
    left, _, right = text.partition("->")
    ports = [_port(match) for match in _PORT.finditer(left)]
    result = _PORT.fullmatch(right.strip())
    if not ports or result is None:
        raise GenomeError(f"{name}: expected 'operands -> result'; found {text}")
    return Signature(tuple(ports), _port(result), role)


def _port(match: re.Match[str]) -> Port:
    name, kind, width = match.groups()
    return Port(name or "result", Kind(kind), width)
