"""The classes of an exported Python file: a mechanism, and the attention of layers without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nas.compiler import make_plan, write
from nas.compiler.inlining import inlined

if TYPE_CHECKING:
    from nas.exporting.request import ExportRequest
    from nas.genome import Placement

_FUNCTION = '''\
def attention_of_layer(layer: int, dim: int = {dim}, heads: int = {heads}) -> nn.Module:
    """Return the attention of a model's layer, numbered from 0."""
    has_mechanism = {condition}
    return (Attention if has_mechanism else StandardAttention)(dim, heads)
'''


def class_sources(request: ExportRequest, *, has_rest: bool) -> list[str]:
    """Return the definitions of a file that imports only torch; the last is ``Attention``.

    Args:
        has_rest: whether to write ``StandardAttention``, for layers without the mechanism, too.
    """
    genomes = [request.genome.rest(), request.genome] if has_rest else [request.genome]
    sizes = request.dim, request.heads
    options = {"qkv_bias": request.qkv_bias, "is_fast": request.is_fast}
    classes = [write(make_plan(genome), *sizes, **options) for genome in genomes]
    texts = [written.text for written in classes]
    if has_rest:
        texts[0] = texts[0].replace("class Attention(", "class StandardAttention(", 1)
    return [*inlined(root for written in classes for root in written.roots), *texts]


def layer_function(request: ExportRequest) -> str:
    """Return the source of ``attention_of_layer``, which selects one of two classes."""
    condition = _condition(request.genome.placement)
    return _FUNCTION.format(dim=request.dim, heads=request.heads, condition=condition)


def _condition(placement: Placement) -> str:
    """Return the expression that is true for a ``layer`` with the mechanism."""
    every, count, offset = placement.every, placement.count, placement.offset
    if every is None:
        return f"{offset} <= layer < {offset + count}" if offset else f"layer < {count}"
    if count == 1:
        return f"layer % {every} == {offset}"
    return f"(layer - {offset}) % {every} < {count}" if offset else f"layer % {every} < {count}"
