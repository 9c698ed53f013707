"""What an export relies on: sources that need torch alone, under names of their own."""

from __future__ import annotations

import pytest

from nas.compiler.inlining import file_source, inlined
from nas.compiler.kernels import fast_class
from nas.genome.primitives import get, names


@pytest.mark.parametrize("is_fast", [False, True], ids=["plain", "fast"])
def test_sources_of_all_primitives_are_one_file_that_runs(is_fast: bool) -> None:
    """Two things of one name, or a use of anything but torch and ours, are errors of the writer."""
    modules = [get(name).module for name in names()]
    modules = [fast_class(module) for module in modules] if is_fast else modules
    scope = {"__name__": "written"}
    exec(file_source(inlined(modules)), scope)
    assert {module.__name__ for module in modules} <= set(scope)
