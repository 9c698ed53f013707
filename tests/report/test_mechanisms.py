"""`nas mechanisms`: every named mechanism, with its costs."""

from __future__ import annotations

import json

import pytest

from nas.cost import attention_cost
from nas.mechanisms import MECHANISMS
from nas.report.mechanisms import Priced, mechanisms_answer, mechanisms_columns, priced
from nas.report.show import Sizes
from nas.report.table import table_lines

SIZES = Sizes(dim=32, heads=2, tokens=17)


@pytest.fixture(scope="module")
def found() -> list[Priced]:
    return priced(SIZES)


def test_answer_has_every_mechanism_with_its_costs(found: list[Priced]) -> None:
    data = json.loads(json.dumps(mechanisms_answer(found, SIZES)))
    items = {item["name"]: item for item in data["mechanisms"]}
    assert list(items) == list(MECHANISMS)
    expected = attention_cost(MECHANISMS["mha"].genome, dim=32, heads=2, tokens=17)
    assert items["mha"]["costs"] == expected.to_dict()
    assert data["sizes"]["dim"] == 32


def test_three_quarters_of_two_heads_have_no_costs(found: list[Priced]) -> None:
    data = mechanisms_answer(found, SIZES)
    assert [item["name"] for item in data["mechanisms"] if item["costs"] is None] == ["lsqa"]
    lines = [line.plain for line in table_lines(mechanisms_columns(found))]
    row = next(line for line in lines if line.startswith("lsqa"))
    assert row.split()[1:4] == ["-", "-", "-"]


def test_table_fits_a_narrow_terminal(found: list[Priced]) -> None:
    columns = mechanisms_columns(found)
    for width in (40, 60, 80, 120):
        assert all(len(line.plain) <= width for line in table_lines(columns, width))
