"""Plug-ins: what other packages offer to each family, and which of it is broken."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from importlib import import_module
from typing import Any, Final

from nas.common.errors import NasWarning

# Where the families are, in the order of `nas plugins`.
FAMILIES: Final = {
    "nas.genome.primitives.base": "REGISTRY",
    "nas.genome.mechanisms": "MECHANISMS",
    "nas.tasks": "TASKS",
    "nas.costs": "COSTS",
    "nas.searching.algorithm": "ALGORITHMS",
    "nas.exporting": "EXPORTS",
    "nas.surgery.hosts": "HOSTS",
}


def list_plugins() -> dict[str, Any]:
    """The JSON answer of ``nas plugins``: entry point groups, and the plug-ins found under each.

    All of them are imported; a broken one has a ``fault`` and no members.
    """
    registries = [getattr(import_module(module), name) for module, name in FAMILIES.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NasWarning)  # the answer names the broken ones
        return {
            "groups": [
                {
                    "group": registry.group,
                    "noun": registry.noun,
                    "plugins": [asdict(found) for found in registry.plugins()],
                }
                for registry in registries
            ]
        }
