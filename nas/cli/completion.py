"""Names that the shell completes, listed without torch and without opening a database.

A shell evaluates what is offered, so only names of plain characters are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nas.common.config import named_files

MEMBERS: Final = ("best", "knee", "cheapest")
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def runs() -> list[str]:
    """Return ``latest`` and the names of the runs in ./runs; an empty list without a run."""
    names = _plain(path.parent.name for path in Path("runs").glob("*/run.sqlite"))
    return ["latest", *names] if names else []


def sources() -> list[str]:
    """Return RUN/ID for the runs in ./runs and the IDs that every run has."""
    return [f"{run}/{member}" for run in runs() for member in MEMBERS]


def tasks() -> list[str]:
    """Return the names of the built-in tasks."""
    return _plain(file.stem for file in (Path(__file__).parents[1] / "tasks").glob("*.yaml"))


def spaces() -> list[str]:
    """Return the names of the packaged search spaces and of files in ./search_spaces."""
    return _plain(named_files("search_spaces"))


def policies() -> list[str]:
    """Return the names of policies (rules for genomes): packaged ones and files in ./validators."""
    return _plain(named_files("validators"))


def _plain(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if _PLAIN.fullmatch(name))
