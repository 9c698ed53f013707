"""`nas mechanisms`: every named mechanism, with its costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nas.compiler import formula
from nas.costs import attention_cost
from nas.mechanisms import MECHANISMS
from nas.report.costs import Sizes
from nas.report.mechanisms import mechanisms_answer, mechanisms_lines

SIZES = Sizes(dim=32, heads=2, tokens=17)


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    found = json.loads(json.dumps(mechanisms_answer(SIZES)))
    assert isinstance(found, dict)
    return found


def test_answer_has_every_mechanism_with_its_costs(answer: dict[str, Any]) -> None:
    items = {item["name"]: item for item in answer["mechanisms"]}
    assert list(items) == list(MECHANISMS)
    expected = attention_cost(MECHANISMS["mha"].genome, dim=32, heads=2, tokens=17)
    assert items["mha"]["costs"] == expected.to_dict()
    assert answer["sizes"]["dim"] == 32


def test_three_quarters_of_two_heads_have_no_costs(answer: dict[str, Any]) -> None:
    assert [m["name"] for m in answer["mechanisms"] if m["costs"] is None] == ["lsqa"]
    row = next(line for line in mechanisms_lines(SIZES, None) if line.plain.startswith("lsqa"))
    assert row.plain.split()[1:4] == ["-", "-", "-"]


def test_table_keeps_every_essential_on_80_columns() -> None:
    """On a wide terminal a mechanism is one line, else its formula stands below."""
    for width in (80, 120, 220, None):
        lines = [line.plain for line in mechanisms_lines(SIZES, width)]
        words = " ".join("\n".join(lines).split())
        assert width is None or max(map(len, lines)) <= width
        assert "…" not in words
        for found in MECHANISMS.values():
            assert found.paper in words
            assert " ".join(formula(found.genome).split()) in words
        is_wide = width in (220, None)
        assert (len(lines) == 1 + len(MECHANISMS)) == is_wide


def test_table_fits_a_narrow_terminal() -> None:
    for width in (40, 60):
        assert all(len(line.plain) <= width for line in mechanisms_lines(SIZES, width))


def test_one_mechanism_is_its_item_with_the_reading(answer: dict[str, Any]) -> None:
    one = mechanisms_answer(SIZES, MECHANISMS["sqa"])
    item = next(item for item in answer["mechanisms"] if item["name"] == "sqa")
    assert one == {"sizes": answer["sizes"]} | item
    assert one["reading"].startswith(one["about"])
