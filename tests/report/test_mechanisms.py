"""`nas mechanisms`: every named mechanism, with its costs."""

from __future__ import annotations

import json

import pytest

from nas.compiler import formula
from nas.costs import attention_cost
from nas.errors import GenomeError
from nas.mechanisms import MECHANISMS
from nas.report.mechanisms import (
    Priced,
    mechanism_answer,
    mechanisms_answer,
    mechanisms_lines,
    price,
    priced,
)
from nas.report.show import Sizes

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
    row = next(line for line in mechanisms_lines(found, None) if line.plain.startswith("lsqa"))
    assert row.plain.split()[1:4] == ["-", "-", "-"]
    assert "3/4 of 2 heads" in price("lsqa", SIZES).problem


def test_table_keeps_every_essential_on_80_columns(found: list[Priced]) -> None:
    """On a wide terminal a mechanism is one line, else its formula stands below."""
    for width in (80, 120, 200, None):
        lines = [line.plain for line in mechanisms_lines(found, width)]
        words = " ".join("\n".join(lines).split())
        assert width is None or max(map(len, lines)) <= width
        assert "…" not in words
        for p in found:
            assert p.mechanism.paper in words
            assert " ".join(formula(p.mechanism.genome).split()) in words
        is_wide = width in (200, None)
        assert len(lines) == 1 + len(found) if is_wide else len(lines) > 2 * len(found)


def test_table_fits_a_narrow_terminal(found: list[Priced]) -> None:
    for width in (40, 60):
        assert all(len(line.plain) <= width for line in mechanisms_lines(found, width))


def test_one_mechanism_is_its_item_with_the_reading(found: list[Priced]) -> None:
    answer = mechanism_answer(price("sqa", SIZES), SIZES)
    items = {item["name"]: item for item in mechanisms_answer(found, SIZES)["mechanisms"]}
    assert answer == {"sizes": mechanisms_answer([], SIZES)["sizes"]} | items["sqa"]
    assert answer["reading"].startswith(answer["about"])


def test_there_is_no_such_mechanism() -> None:
    with pytest.raises(GenomeError, match=r"'slqa'.*did you mean 'sqa'"):
        price("slqa", SIZES)
