"""Every primitive keeps the promises of ``nas.testing``, and can be exported."""

from __future__ import annotations

from typing import Any

import pytest

from nas.compiler.inlining import file_source, inlined
from nas.compiler.kernels import fast_class
from nas.genome.primitives import get, names
from nas.testing.cases import Case, cases
from nas.testing.primitives import PROMISES
from nas.testing.promises import keep

CASES = [case for name in names() for case in cases(get(name))]


def once_each() -> list[Any]:
    """All cases; in the plain suite the first of each primitive."""
    first = {case.primitive.name: case for case in reversed(CASES)}.values()
    return [pytest.param(case, marks=() if case in first else pytest.mark.slow) for case in CASES]


@pytest.mark.parametrize("case", once_each(), ids=str)
def test_primitive(case: Case) -> None:
    keep(case, PROMISES, case)


@pytest.mark.parametrize("is_fast", [False, True], ids=["plain", "fast"])
def test_sources_of_all_primitives_run_as_one_file(is_fast: bool) -> None:
    """``file_source`` raises for two classes of one name, and for imports other than torch."""
    modules = [get(name).module for name in names()]
    modules = [fast_class(module) for module in modules] if is_fast else modules
    scope = {"__name__": "written"}
    exec(file_source(inlined(modules)), scope)
    assert {module.__name__ for module in modules} <= set(scope)
