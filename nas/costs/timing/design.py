"""The mechanisms that a calibration times: small mechanisms with each primitive and kernel.

They are generated from the declarations of the primitives, so that new primitives are included: a
score before a normaliser with a fused kernel and one without; a normaliser after dot products; maps
of tokens, on the values. Parameters are varied one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from nas.genome import Genome
from nas.genome.primitives import Kind, Primitive, Signature, get, names

Call = tuple[str, list[Any], dict[str, Any]]
Params = dict[str, Any]

_SCORES: Final[tuple[Call, ...]] = (
    ("scaled_dot_product", ["q", "k"], {}),
    ("bilinear", ["q", "k"], {}),
)
_NORMALISERS: Final = ("softmax", "uniform", "softmax_free", "relu_squared")
_MORE: Final = (*_NORMALISERS, "sigmoid", "sparsemax")
# Few projections, so that the timed primitive dominates.
_FEW: Final = {"has_wq": False, "has_wv": False, "has_wo": False}
_NONE: Final = _FEW | {"has_wk": False}
_WIDE: Final = _NONE | {"raw": "shared", "merge": "sum"}
_AROUND: Final[tuple[Params, ...]] = (
    *({}, {"has_wo": False}, _FEW, _NONE, _WIDE, {"merge": "sum"}),
    *({"qk_dim": "1/2"}, {"kv_heads": "one"}),
    *({"q_heads": share, "kv_heads": share} for share in ("1/2", "one")),
)


def designs(tokens: int) -> Iterator[Genome]:
    """The mechanisms for a sequence length; some may not exist at a model's head count."""
    window = {"window": max(1, tokens // 4)}
    for around in _AROUND:
        for normaliser in _NORMALISERS:
            yield _attention([_SCORES[0], (normaliser, [0], {})], around)
    for around in (_FEW, _WIDE):
        for normaliser in _MORE:
            yield _attention([_SCORES[0], (normaliser, [0], {})], around, window)
    for name in names():
        primitive = get(name)
        for signature in primitive.signatures:
            for number, params in enumerate(_variants(primitive, tokens)):
                yield from _around(primitive, signature, params, is_first=number == 0)


def _variants(primitive: Primitive, tokens: int) -> Iterator[Params]:
    """The defaults, and each parameter at other values."""
    base: Params = {}
    if "tokens" in primitive.parameters:  # valid at this length only
        base = {"tokens": tokens}
    yield base
    for name, domain in primitive.parameters.items() if not base else ():
        values: tuple[Any, ...] = getattr(domain, "values", ())
        if isinstance(domain.default, bool):
            values = (not domain.default,)
        elif hasattr(domain, "low") and isinstance(domain.default, int | None):
            values = (max(domain.low, (domain.default or 8) // 2),)
        yield from ({name: value} for value in values if value != domain.default)


def _around(
    primitive: Primitive, signature: Signature, params: Params, *, is_first: bool
) -> Iterator[Genome]:
    """Attention mechanisms that contain a call of a primitive."""
    kinds, name = [port.kind for port in signature.inputs], primitive.name
    if signature.output.kind is Kind.SCORES:
        below = _SCORES[: kinds.count(Kind.SCORES)]
        scores, streams = iter(range(len(below))), iter("k" if below else "qk")
        inputs = [next(streams if kind is Kind.TOKENS else scores) for kind in kinds]
        nodes = [*below, (name, inputs, params)]
        for normaliser in ("softmax", "relu_squared") if is_first else ("softmax",):
            yield _attention([*nodes, (normaliser, [len(below)], {})])
        if is_first and not below:
            yield _attention([*nodes, ("softmax", [0], {})], _WIDE)
    elif kinds == [Kind.SCORES]:
        weights: list[Call] = [_SCORES[0], (name, [0], params)]
        yield _attention(weights)
        if is_first:  # weights with a reader that needs them explicitly
            yield _attention([*weights, ("relu_squared", [0], {}), ("multiply", [1, 2], {})])
    elif set(kinds) == {Kind.WEIGHTS}:
        both: list[Call] = [(op, [0], {}) for op in ("softmax", "relu_squared")]
        yield _attention([_SCORES[0], *both, (name, [1, 2][: len(kinds)], params)])
    elif set(kinds) == {Kind.TOKENS}:
        call = (name, ["v"] * len(kinds), params)
        for around in (_NONE, _WIDE) if is_first else (_NONE,):
            yield _attention([call, ("uniform", ["v"], {})], around, values=0)


def _attention(
    nodes: list[Call], projections: Params = _FEW, mask: Params | None = None, values: Any = "v"
) -> Genome:
    """The genome whose last node computes the weights of a weighted sum."""
    calls = [*nodes, ("weighted_sum", [len(nodes) - 1, values], {})]
    graph = [{"op": op, "inputs": inputs, "params": params} for op, inputs, params in calls]
    return Genome.from_dict(
        {"graph_def": graph, "proj_config": projections, "visibility": mask or {}}
    )
