"""Foundations of all other packages: errors, configuration files, registries, statistics."""

from typing import Final

DISTRIBUTION: Final = "attention-nas"  # on the Python package index; ``nas`` is another project


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an optional extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
