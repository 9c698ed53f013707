"""Kernels: faster subclasses of primitives, and functions that compute attention in one call.

The primitives in ``nas.genome.primitives`` are written for readability. A subclass in this package
has the same parameters and a faster ``forward``. The compiler uses the subclass for training:

    @faster
    class FastQana(Qana): ...

A kernel chooses between equivalent computations by device, type and shape only, so that equal seeds
give equal numbers.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

from torch import nn

if TYPE_CHECKING:
    M = TypeVar("M", bound=type[nn.Module])

_FASTER: Final[dict[type[nn.Module], type[nn.Module]]] = {}


def faster(module: M) -> M:
    """Register a faster subclass of a primitive's class; used as a decorator."""
    _FASTER[module.__bases__[0]] = module
    return module


def fast_class(module: type[nn.Module]) -> type[nn.Module]:
    """Return the faster subclass of a primitive's class, or the class itself without subclass."""
    _load()
    return _FASTER.get(module, module)


@cache
def _load() -> None:
    for name in ("normalisers", "pair_scores"):
        import_module(f"{__name__}.{name}")
