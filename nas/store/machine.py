"""Who writes a run: versions and processor, read without importing any of the libraries."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Final

from nas.store.records import Session

# What can change a front: the rest of the environment cannot.
LIBRARIES: Final = ("nas", "torch", "torchvision", "numpy", "pymoo", "ray", "fvcore")


def this_session(command: str, *, workers: int = 1, processor: str | None = None) -> Session:
    """Describe this process.

    Args:
        command: the command line that began it.
        workers: trainings at once.
        processor: what trains, where it is not this machine's processor (a GPU's name).
    """
    return Session(command, _versions(), processor or _processor(), workers)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    """The model as the maker calls it, and the number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = names[0] if names else platform.processor() or platform.machine() or "unknown"
    return f"{model} ({os.cpu_count()} cores)"
