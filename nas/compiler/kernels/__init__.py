"""Kernels of compiled mechanisms: fast forms of primitives, and attention in one call.

The primitives in ``nas.genome.primitives`` are written for readability. A subclass here has the
same parameters and a faster ``forward``; the compiler builds the subclass:

    @faster
    class FastQana(Qana): ...

The choice between equivalent forms depends only on device, type and shape, so that equal seeds give
equal numbers.
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
    """Decorate a faster subclass of a primitive's class."""
    _FASTER[module.__bases__[0]] = module
    return module


def fast_class(module: type[nn.Module]) -> type[nn.Module]:
    """The fast form of a primitive's class, or the class itself."""
    _load()
    return _FASTER.get(module, module)


@cache
def _load() -> None:
    for name in ("normalisers", "pair_scores"):
        import_module(f"{__name__}.{name}")
