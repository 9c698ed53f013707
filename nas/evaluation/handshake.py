"""What a worker must share with whoever sends it work: this package's code, and plug-ins.

A plug-in is a module outside this package that has registered a primitive or a family of tasks. Its
name goes to workers, which import it before they say what they have.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from nas.evaluation.trainer import worker_name
from nas.genome.primitives import names as primitive_names
from nas.genome.primitives.base import REGISTRY
from nas.tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGE: Final = Path(__file__).resolve().parents[1]
OWN: Final = PACKAGE.name


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process can do, and which one it is.

    Attributes:
        name: host and process id.
        node: what the cluster calls its machine.
        code: a digest of this package's source.
        torch: its version.
        members: the primitives and families of tasks that it has.
    """

    name: str
    node: str
    code: str
    torch: str
    members: frozenset[str]

    def lacks(self, other: Identity) -> str:
        """What this process would need to do the other's work, in words; nothing if it can."""
        if self.code != other.code:
            return f"another nas (its code is {self.code}, here it is {other.code})"
        if self.torch != other.torch:
            return f"torch {self.torch}, and here it is {other.torch}"
        if missing := sorted(other.members - self.members):
            return f"no {', '.join(missing)}: install the plug-in there, and define it in a module"
        return ""


def identity(node: str = "") -> Identity:
    """This process's own, with all plug-ins loaded that it can find."""
    members = {f"primitive {name!r}" for name in primitive_names()}
    members |= {f"task family {name!r}" for name in TASKS.names()}
    version, *_ = str(torch.__version__).split("+")  # builds for CPUs and GPUs may work together
    return Identity(worker_name(), node, _code(), version, frozenset(members))


def plugins() -> tuple[str, ...]:
    """The modules of plug-ins that this process has loaded, by full name."""
    primitive_names()  # which loads what is installed
    members: list[type] = [primitive.module for primitive in REGISTRY.values()]
    members += [TASKS.get(name) for name in TASKS.names()]
    found = dict.fromkeys(member.__module__ for member in members)
    return tuple(name for name in found if name.partition(".")[0] != OWN and name != "__main__")


def load(modules: Iterable[str]) -> None:
    """Import plug-ins by full name."""
    for name in modules:
        import_module(name)


def sources(modules: Iterable[str]) -> list[Path]:
    """The files or folders to send so that modules can be imported elsewhere."""
    tops = dict.fromkeys(name.partition(".")[0] for name in modules)
    return [_source(sys.modules[top]) for top in tops]


def _source(module: object) -> Path:
    folders = getattr(module, "__path__", None)
    return Path(next(iter(folders)) if folders else module.__file__)  # type: ignore[attr-defined]


@cache
def _code() -> str:
    """A digest of the package's source; a version's number says too little of a checkout."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:8]
