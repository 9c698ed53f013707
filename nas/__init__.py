"""Neural architecture search that discovers attention mechanisms.

    genome = nas.load_genome("latest/best")
    block = nas.build_attention(genome, dim=64, heads=4)
    result = nas.search(space="attention_v2", generations=50, data="digits")

Names are imported when they are first used, so that ``import nas`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nas.api.climbing import ladder as ladder
    from nas.api.comparing import evaluate as evaluate
    from nas.api.explaining import explain as explain
    from nas.api.exporting import export as export
    from nas.api.genomes import build_attention as build_attention
    from nas.api.genomes import cost as cost
    from nas.api.genomes import list_mechanisms as list_mechanisms
    from nas.api.genomes import list_objectives as list_objectives
    from nas.api.genomes import list_primitives as list_primitives
    from nas.api.genomes import list_spaces as list_spaces
    from nas.api.genomes import list_tasks as list_tasks
    from nas.api.genomes import show as show
    from nas.api.genomes import validate as validate
    from nas.api.judging import judge as judge
    from nas.api.runs import confirm as confirm
    from nas.api.runs import resume as resume
    from nas.api.runs import search as search
    from nas.common.errors import NasError as NasError
    from nas.common.registry import load_plugin as load_plugin
    from nas.genome import Genome as Genome
    from nas.report.front import front as front
    from nas.report.page import write_report as write_report
    from nas.store.sources import load_genome as load_genome
    from nas.surgery.merging import merge as merge
    from nas.surgery.swap import swap_attention as swap_attention

_MODULES: Final = {
    "nas.api.climbing": ("ladder",),
    "nas.api.comparing": ("evaluate",),
    "nas.api.explaining": ("explain",),
    "nas.api.exporting": ("export",),
    "nas.api.genomes": (
        *("build_attention", "cost", "list_mechanisms", "list_objectives"),
        *("list_primitives", "list_spaces", "list_tasks", "show", "validate"),
    ),
    "nas.api.judging": ("judge",),
    "nas.api.runs": ("confirm", "resume", "search"),
    "nas.common.errors": ("NasError",),
    "nas.common.registry": ("load_plugin",),
    "nas.genome": ("Genome",),
    "nas.report.front": ("front",),
    "nas.report.page": ("write_report",),
    "nas.store.sources": ("load_genome",),
    "nas.surgery": ("merge", "swap_attention"),
}

__all__ = [name for names in _MODULES.values() for name in names]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'nas' has no attribute {name!r}")
