"""Who writes a run: versions and hardware, read without importing any of the libraries."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Final

from nas.processor import processor_name
from nas.store.records import Session

# What can change a front: the rest of the environment cannot.
LIBRARIES: Final = ("nas", "torch", "torchvision", "numpy", "pymoo", "moocore", "ray", "fvcore")


def this_session(command: str, *, workers: int = 1, hardware: str | None = None) -> Session:
    """Describe this process.

    Args:
        command: the command line that began it.
        workers: trainings at once.
        hardware: what trains, where it is not this machine's processor (a GPU's name).
    """
    return Session(command, _versions(), hardware or processor_name(), workers)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
