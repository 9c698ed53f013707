"""Every primitive keeps the promises of ``nas.testing``; and broken ones are found out."""

from __future__ import annotations

import pytest

from nas.genome.primitives import get, names
from nas.testing.cases import Case, cases
from nas.testing.primitives import PROMISES
from nas.testing.promises import Promise, keep

CASES = [case for name in names() for case in cases(get(name))]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_primitive(promise: Promise, case: Case) -> None:
    keep(case, [promise], case)
