"""The mechanisms that a calibration times: each primitive, and each of its kernels, in a small one.

They are made from the primitives' own declarations, so that a new primitive is timed without a
line here: a score in attention by softmax, and before a normaliser that needs every score; a
normaliser over dot products; what changes tokens, on the values. A parameter is varied alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nas.genome import Genome
from nas.primitives import Kind, Sizes, get, names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.genome import ParamValue
    from nas.primitives import Primitive, Signature

Call = tuple[str, list[Any], dict[str, Any]]
Nodes = list[Call]

_DOT: Final[Call] = ("scaled_dot_product", ["q", "k"], {})
_OTHER: Final[Call] = ("bilinear", ["q", "k"], {})
# Normalisers of which one is joined with its scores and its sum, and the other is not.
_NORMALISERS: Final = ("softmax", "relu_squared")
# Those for which the shapes of their operands matter most.
_SHAPED: Final = ("softmax_free", "relu_squared")
# What is timed should be most of what is done: with few projections, and for tokens in a mean.
_FEW: Final = {"has_wq": False, "has_wv": False, "has_wo": False}
_NONE: Final = _FEW | {"has_wk": False}
_WIDE: Final = _NONE | {"raw": "shared", "merge": "sum"}
_AROUND: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"has_wo": False},
    {"has_wq": False},
    _FEW,
    _NONE,
    _WIDE,
    {"merge": "sum"},
    {"qk_dim": "1/2"},
    {"q_heads": "one", "kv_heads": "one"},
    {"q_heads": "1/2", "kv_heads": "1/2"},
    {"q_heads": "one"},
    {"kv_heads": "one"},
)


def designs(tokens: int) -> Iterator[Genome]:
    """The mechanisms, for sequences of so many tokens; some may not exist at a model's heads."""
    for around in _AROUND:
        is_shaped = bool({"raw", "q_heads", "kv_heads", "qk_dim"} & around.keys())
        for normaliser in ("softmax", "uniform", *(_SHAPED if is_shaped else ())):
            yield _summed([_DOT, (normaliser, [0], {})], around)
    seen = {"window": max(1, tokens // 4)}
    for normaliser in (
        "softmax",
        "sigmoid",
        "relu_squared",
        "sparsemax",
        "softmax_free",
        "uniform",
    ):
        yield _summed([_DOT, (normaliser, [0], {})], _FEW, seen)
        yield _summed([_DOT, (normaliser, [0], {})], _WIDE, seen)
    for name in names():
        primitive = get(name)
        for signature in primitive.signatures:
            base, *others = _variants(primitive, tokens)
            yield from _around(primitive, signature, base, _NORMALISERS)
            for params in others:
                yield from _around(primitive, signature, params, _NORMALISERS[:1])


def _variants(primitive: Primitive, tokens: int) -> list[dict[str, ParamValue]]:
    """The defaults, and each parameter at other values."""
    base: dict[str, ParamValue] = {}
    if "tokens" in primitive.parameters:  # for this many alone: no space offers it
        return [{"tokens": tokens}]
    found = [base]
    for name, domain in primitive.parameters.items():
        values: tuple[ParamValue, ...] = getattr(domain, "values", ())
        if isinstance(domain.default, bool):
            values = (not domain.default,)
        elif hasattr(domain, "low") and isinstance(domain.default, int | None):
            values = (max(domain.low, (domain.default or 8) // 2),)
        found += [base | {name: value} for value in values if value != domain.default]
    return found


def _around(
    primitive: Primitive,
    signature: Signature,
    params: dict[str, Any],
    normalisers: tuple[str, ...],
) -> Iterator[Genome]:
    """Attention with a call of a primitive in it."""
    kinds = [port.kind for port in signature.inputs]
    name, result = primitive.name, signature.output.kind
    if result is Kind.TOKENS and set(kinds) == {Kind.TOKENS}:
        call = (name, ["v"] * len(kinds), params)
        nodes: Nodes = [_DOT, ("uniform", [0], {}), call, ("weighted_sum", [1, 2], {})]
        yield _genome(nodes, _NONE)
        if primitive.macs(Sizes(dim=16, heads=2, width=8, tokens=8), primitive.full(params)):
            yield _genome(nodes, _WIDE)
    elif result is Kind.SCORES:
        for normaliser in normalisers:
            before: Nodes = [] if Kind.SCORES not in kinds else [_DOT, _OTHER]
            scores = iter((0, 1))
            streams = iter(("k",) if before else ("q", "k"))
            inputs = [next(streams if kind is Kind.TOKENS else scores) for kind in kinds]
            nodes = [*before[: kinds.count(Kind.SCORES)], (name, inputs, params)]
            weights = [*nodes, (normaliser, [len(nodes) - 1], {})]
            yield _summed(weights)
            if not before and not params and normaliser == "softmax":
                yield _summed(weights, _WIDE)
    elif kinds == [Kind.SCORES]:
        yield _summed([_DOT, (name, [0], params)])
        if not params:  # weights that somebody reads as they are
            other: Call = (_NORMALISERS[1], [0], {})
            yield _summed([_DOT, (name, [0], params), other, ("multiply", [1, 2], {})])
    elif set(kinds) == {Kind.WEIGHTS}:
        nodes = [_DOT, *((n, [0], {}) for n in _NORMALISERS)]
        yield _summed([*nodes, (name, [1, 2][: len(kinds)], params)])


def _summed(
    nodes: Nodes, projections: dict[str, Any] = _FEW, seen: dict[str, int] | None = None
) -> Genome:
    return _genome([*nodes, ("weighted_sum", [len(nodes) - 1, "v"], {})], projections, seen)


def _genome(
    nodes: Nodes, projections: dict[str, Any], seen: dict[str, int] | None = None
) -> Genome:
    graph = [{"op": op, "inputs": inputs, "params": params} for op, inputs, params in nodes]
    return Genome.from_dict(
        {"graph_def": graph, "proj_config": projections, "visibility": seen or {}}
    )
