"""Who writes a run: versions and hardware, read without importing any of the libraries."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from typing import Final

from nas.processor import processor_name
from nas.store.records import Session

# What can change a front: the rest of the environment cannot.
LIBRARIES: Final = ("nas", "torch", "torchvision", "numpy", "pymoo", "moocore", "ray")


def this_session(command: str, *, workers: int = 1) -> Session:
    """Describe this process; what each training ran on is in its evaluation."""
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return Session(command, versions, processor_name(), workers)
