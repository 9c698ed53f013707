"""What a host is: a kind of attention module whose core can be exchanged.

One file a library knows its modules. None imports a library beyond torch: a model brings its own.
"""

from __future__ import annotations

from typing import Final, Protocol

from torch import nn

from nas.errors import NasError
from nas.surgery.core import AttentionCore, HostSizes

CORE: Final = "core"  # the name of the exchanged core in its module, and in the state_dict


class Host(Protocol):
    """A kind of attention module.

    Contract: ``measure`` changes nothing and raises ``NasError`` for a module whose function the
    exchange would not keep; ``install`` works on the module itself, so that its hooks, its
    parameters and whoever holds it stay, and adds the core's parameters as ``core.*``.
    """

    @property
    def about(self) -> str:
        """What it is, for a person."""
        ...

    def recognises(self, module: nn.Module) -> bool:
        """Whether the module is one of this kind."""
        ...

    def measure(self, module: nn.Module) -> HostSizes:
        """The sizes of its attention."""
        ...

    def install(self, module: nn.Module, core: AttentionCore) -> None:
        """Let the module attend by the core from now on."""
        ...


def refusal(module: nn.Module, reason: str) -> NasError:
    """The error for a module that cannot be swapped; the caller says which one it is."""
    return NasError(f"{type(module).__name__} {reason}")
