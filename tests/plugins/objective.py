"""An objective that needs no training: what decoding keeps after 4,096 tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nas.costs import COSTS, CostMeasure, costs_of

if TYPE_CHECKING:
    from nas.compiler import ResolvedGenome
    from nas.costs import CostContext

CONTEXT: Final = 4096


def _kept(resolved: ResolvedGenome, setting: CostContext) -> float:
    """Bytes in all layers after so many tokens, whatever context the space states."""
    long = replace(setting, context=CONTEXT)
    name = "kv_cache_bytes_per_token"
    return CONTEXT * costs_of(resolved, long, [name])[name]


MEASURE: Final = COSTS.register("cache_bytes_at_4096")(
    CostMeasure("cache_bytes_at_4096", "B", "keys and values kept after 4,096 tokens", _kept)
)
