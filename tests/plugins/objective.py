"""An objective that needs no training: the size of the decoding cache after 4,096 tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nas.costs import COSTS, CostMeasure, costs_of

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome
    from nas.costs import CostContext

CONTEXT: Final = 4096


def _cache_bytes(resolved: ResolvedGenome, context: CostContext) -> float:
    """Bytes of all layers after 4,096 tokens, for any ``context`` of the space."""
    long = replace(context, cached_tokens=CONTEXT)
    name = "kv_cache_bytes_per_token"
    return CONTEXT * costs_of(resolved, long, [name])[name]


MEASURE: Final = COSTS.register("cache_bytes_at_4096")(
    CostMeasure("cache_bytes_at_4096", "B", "decoding cache after 4,096 tokens", _cache_bytes)
)
