"""Kernels of compiled mechanisms: fast forms of primitives, and attention in one call.

A primitive in ``nas.genome.primitives`` is written to be read. Where another form is faster, a
subclass here has the same parameters and another ``forward``, and the compiler builds that one:

    @faster
    class FastQana(Qana): ...

Which of several equal forms computes something goes by rules of device, type and shape alone, so
that equal seeds give equal numbers.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from torch import nn

    M = TypeVar("M", bound=type[nn.Module])

_FASTER: Final[dict[type[nn.Module], type[nn.Module]]] = {}


def faster(module: M) -> M:
    """Decorate a subclass of a primitive's class that computes the same in less time."""
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
