"""Check that a worker has the driver's version of this package, of torch, and its plug-ins.

A plug-in is a module outside this package that has registered a primitive or a family of tasks. The
driver sends its name; workers import it before they report their identity.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import torch

from nas.evaluation.trainer import worker_name
from nas.genome.primitives import names as primitive_names
from nas.genome.primitives.base import REGISTRY
from nas.tasks import TASKS

PACKAGE: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Identity:
    """A process with its versions and its registered primitives and task families."""

    name: str  # host and process id
    node: str  # the cluster's id of its machine
    code: str  # a digest of this package's source
    torch: str  # its version
    members: frozenset[str]  # registered primitives and task families

    def lacks(self, driver: Identity) -> str:
        """A description of how this process differs from the driver; empty if it can train."""
        if self.code != driver.code:
            return f"another nas (its code is {self.code}, here it is {driver.code})"
        if self.torch != driver.torch:
            return f"torch {self.torch}, and here it is {driver.torch}"
        if missing := sorted(driver.members - self.members):
            return f"no {', '.join(missing)}: install the plug-in there, and define it in a module"
        return ""


def identity(node: str = "") -> Identity:
    """The identity of this process, with all installed plug-ins loaded."""
    members = {f"primitive {name!r}" for name in primitive_names()}
    members |= {f"task family {name!r}" for name in TASKS.names()}
    version, *_ = str(torch.__version__).split("+")  # builds for CPUs and GPUs may work together
    return Identity(worker_name(), node, _code_digest(), version, frozenset(members))


def plugins() -> tuple[str, ...]:
    """The full names of the plug-in modules that this process has loaded."""
    primitive_names()  # loads installed plug-ins
    members: list[type] = [primitive.module for primitive in REGISTRY.values()]
    members += [TASKS.get(name) for name in TASKS.names()]
    modules = dict.fromkeys(member.__module__ for member in members)
    return tuple(m for m in modules if m.partition(".")[0] not in (PACKAGE.name, "__main__"))


def sources(modules: Iterable[str]) -> list[Path]:
    """The top-level files or directories of modules, which a worker needs to import them."""
    tops = [sys.modules[top] for top in dict.fromkeys(m.partition(".")[0] for m in modules)]
    return [Path(next(iter(getattr(top, "__path__", [top.__file__])))) for top in tops]


@cache
def _code_digest() -> str:
    """A digest of the package's source, since its version does not identify a checkout."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:8]
