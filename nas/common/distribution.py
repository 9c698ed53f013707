"""The name of this package on the Python package index; ``nas`` there is another project."""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "attention-nas"


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an optional extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
