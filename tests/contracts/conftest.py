"""Registries and modules of plug-ins, restored after each test that registers a member."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from nas.costs import COSTS
from nas.exporting import EXPORTS
from nas.genome.mechanisms import MECHANISMS
from nas.genome.primitives.base import REGISTRY
from nas.searching.algorithm import ALGORITHMS
from nas.tasks import TASKS

REGISTRIES = (REGISTRY, MECHANISMS, COSTS, EXPORTS, ALGORITHMS, TASKS)


@pytest.fixture
def restored_registries() -> Iterator[None]:
    before = [dict(registry) for registry in REGISTRIES]
    yield
    for registry, members in zip(REGISTRIES, before, strict=True):
        registry._members = members  # type: ignore[assignment]
    for name in [m for m in sys.modules if m.startswith("tests.plugins.")]:
        del sys.modules[name]
