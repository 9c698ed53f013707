"""The mechanisms that a calibration times: each primitive, and each of its kernels, in a small one.

They are made from the primitives' own declarations, so that a new primitive is timed without a
line here: a score in attention by softmax, and before a normaliser that needs every score; a
normaliser over dot products; what changes tokens, on the values. A parameter is varied alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nas.genome import Genome
from nas.primitives import Kind, get, names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nas.genome import ParamValue
    from nas.primitives import Primitive, Signature

Nodes = list[tuple[str, list[Any], dict[str, Any]]]

_DOT: Final = ("scaled_dot_product", ["q", "k"], {})
_OTHER: Final = ("bilinear", ["q", "k"], {})
# Normalisers of which one is joined with its scores and its sum, and the other is not.
_NORMALISERS: Final = ("softmax", "relu_squared")
# Projections and masks around standard attention.
_AROUND: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"has_wq": False},
    {"has_wq": False, "has_wk": False, "has_wv": False},
    {"has_wq": False, "has_wk": False, "has_wv": False, "has_wo": False},
    {"has_wq": False, "has_wk": False, "has_wv": False, "raw": "shared", "merge": "sum"},
    {"has_wo": False},
    {"q_heads": "one", "kv_heads": "one"},
    {"q_heads": "1/2", "kv_heads": "1/2"},
    {"kv_heads": "one"},
    {"q_heads": "one"},
    {"qk_dim": "1/2"},
    {"merge": "sum"},
)


def designs(tokens: int) -> Iterator[Genome]:
    """The mechanisms, for sequences of so many tokens; some may not exist at a model's heads."""
    attention = [_DOT, ("softmax", [0], {}), ("weighted_sum", [1, "v"], {})]
    for around in _AROUND:
        yield _genome(attention, around)
        for normaliser in ("softmax_free", "uniform", "relu_squared"):
            if around.keys() & {"kv_heads", "q_heads", "raw"}:
                yield _genome([_DOT, (normaliser, [0], {}), attention[2]], around)
    for normaliser in _NORMALISERS:
        nodes = [_DOT, (normaliser, [0], {}), attention[2]]
        yield _genome(nodes, {}, {"window": max(1, tokens // 4)})
    for name in names():
        primitive = get(name)
        for params in _variants(primitive, tokens):
            for signature in primitive.signatures:
                yield from _around(primitive, signature, params)


def _variants(primitive: Primitive, tokens: int) -> list[dict[str, ParamValue]]:
    """The defaults, and each parameter at other values."""
    base: dict[str, ParamValue] = {}
    if "tokens" in primitive.parameters:  # a mechanism for this many
        base["tokens"] = tokens
    found = [base]
    for name, domain in primitive.parameters.items():
        values: tuple[ParamValue, ...] = getattr(domain, "values", ())
        if isinstance(domain.default, bool):
            values = (not domain.default,)
        elif hasattr(domain, "low") and isinstance(domain.default, int | None) and name != "tokens":
            values = (max(domain.low, (domain.default or 8) // 2),)
        found += [base | {name: value} for value in values if value != domain.default]
    return found


def _around(primitive: Primitive, signature: Signature, params: dict[str, Any]) -> Iterator[Genome]:
    """Attention with a call of a primitive in it."""
    kinds = [port.kind for port in signature.inputs]
    name, result = primitive.name, signature.output.kind
    if result is Kind.TOKENS and set(kinds) == {Kind.TOKENS}:
        call = (name, ["v"] * len(kinds), params)
        yield _genome([_DOT, ("softmax", [0], {}), call, ("weighted_sum", [1, 2], {})])
    elif result is Kind.SCORES:
        for normaliser in _NORMALISERS:
            before: Nodes = [] if Kind.SCORES not in kinds else [_DOT, _OTHER]
            scores = iter((0, 1))
            tokens = iter(("k",) if before else ("q", "k"))
            inputs = [next(tokens if kind is Kind.TOKENS else scores) for kind in kinds]
            nodes = [*before[: kinds.count(Kind.SCORES)], (name, inputs, params)]
            yield _summed([*nodes, (normaliser, [len(nodes) - 1], {})])
    elif kinds == [Kind.SCORES]:
        yield _summed([_DOT, (name, [0], params)])
    elif set(kinds) == {Kind.WEIGHTS}:
        nodes = [_DOT, *((n, [0], {}) for n in _NORMALISERS)]
        yield _summed([*nodes, (name, [1, 2][: len(kinds)], params)])


def _summed(nodes: Nodes) -> Genome:
    return _genome([*nodes, ("weighted_sum", [len(nodes) - 1, "v"], {})])


def _genome(
    nodes: Nodes, projections: dict[str, Any] | None = None, seen: dict[str, int] | None = None
) -> Genome:
    graph = [{"op": op, "inputs": inputs, "params": params} for op, inputs, params in nodes]
    return Genome.from_dict(
        {"graph_def": graph, "proj_config": projections or {}, "visibility": seen or {}}
    )
