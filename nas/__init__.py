"""Neural architecture search that discovers attention mechanisms.

    genome = nas.load_genome("latest/best")
    block = nas.build_attention(genome, dim=64, heads=4)
    result = nas.search(space="attention_v2", generations=50, data="digits")

Names are imported when first used, so that ``import nas`` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nas.api import evaluate, resume, search
    from nas.compiler import build_attention
    from nas.compiler.decoding import Decoder
    from nas.errors import NasError
    from nas.genome import Genome
    from nas.sources import load_genome
    from nas.surgery import factor, merge, swap_attention

__all__ = [
    "Decoder",
    "Genome",
    "NasError",
    "build_attention",
    "evaluate",
    "factor",
    "load_genome",
    "merge",
    "resume",
    "search",
    "swap_attention",
]

_ROOMS = {
    "Decoder": "nas.compiler.decoding",
    "Genome": "nas.genome",
    "NasError": "nas.errors",
    "build_attention": "nas.compiler",
    "evaluate": "nas.api",
    "factor": "nas.surgery",
    "load_genome": "nas.sources",
    "merge": "nas.surgery",
    "resume": "nas.api",
    "search": "nas.api",
    "swap_attention": "nas.surgery",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'nas' has no attribute {name!r}")
    return getattr(import_module(_ROOMS[name]), name)


class _SearchRoom(ModuleType):
    """The room nas/search, which can be called as the function of its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from nas.api import search as begin

        return begin(*arguments, **options)


class _Package(ModuleType):
    """This package. Importing from nas/search binds that room to ``nas.search``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "search" and isinstance(value, ModuleType):
            value.__class__ = _SearchRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
