"""Neural architecture search that discovers attention mechanisms.

    genome = nas.load_genome("latest/best")
    block = nas.build_attention(genome, dim=64, heads=4)
    result = nas.search(space="attention_v2", generations=50, data="digits")

Names are imported when first used, so that ``import nas`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nas.api.comparing import benchmark, evaluate
    from nas.api.explaining import explain
    from nas.api.exporting import export
    from nas.api.genomes import (
        build_attention,
        cost,
        list_mechanisms,
        list_objectives,
        list_plugins,
        show,
        validate,
    )
    from nas.api.runs import confirm, resume, search
    from nas.common.errors import NasError
    from nas.costs.decoding import Decoder
    from nas.genome import Genome
    from nas.report.front import front
    from nas.report.page import write_report
    from nas.store.sources import load_genome
    from nas.surgery.factor import factor
    from nas.surgery.files import load_swapped, save_swapped
    from nas.surgery.merge import merge
    from nas.surgery.swap import preview_swap, swap_attention

__all__ = [
    "Decoder",
    "Genome",
    "NasError",
    "benchmark",
    "build_attention",
    "confirm",
    "cost",
    "evaluate",
    "explain",
    "export",
    "factor",
    "front",
    "list_mechanisms",
    "list_objectives",
    "list_plugins",
    "load_genome",
    "load_swapped",
    "merge",
    "preview_swap",
    "resume",
    "save_swapped",
    "search",
    "show",
    "swap_attention",
    "validate",
    "write_report",
]

# Where a name lives, unless in nas.api.genomes.
_MODULES: Final = {
    "Decoder": "nas.costs.decoding",
    "Genome": "nas.genome",
    "NasError": "nas.common.errors",
    "benchmark": "nas.api.comparing",
    "confirm": "nas.api.runs",
    "evaluate": "nas.api.comparing",
    "explain": "nas.api.explaining",
    "export": "nas.api.exporting",
    "factor": "nas.surgery",
    "front": "nas.report.front",
    "load_genome": "nas.store.sources",
    "load_swapped": "nas.surgery",
    "merge": "nas.surgery",
    "preview_swap": "nas.surgery",
    "resume": "nas.api.runs",
    "save_swapped": "nas.surgery",
    "search": "nas.api.runs",
    "swap_attention": "nas.surgery",
    "write_report": "nas.report.page",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'nas' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "nas.api.genomes")), name)
