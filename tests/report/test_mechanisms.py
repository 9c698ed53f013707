"""`nas mechanisms`: every named mechanism, with its costs."""

from __future__ import annotations

import json

from nas.compiler import formula
from nas.costs import attention_cost
from nas.genome.mechanisms import MECHANISMS
from nas.report.costs import Sizes, mechanisms_answer, mechanisms_lines

SIZES = Sizes(dim=32, heads=2, tokens=17)


def test_answer_has_every_mechanism_with_costs_where_it_exists() -> None:
    answer = json.loads(json.dumps(mechanisms_answer(SIZES)))
    items = {item["name"]: item for item in answer["mechanisms"]}
    assert list(items) == list(MECHANISMS)
    expected = attention_cost(MECHANISMS["mha"].genome, dim=32, heads=2, tokens=17)
    assert items["mha"]["costs"] == expected.to_dict()
    assert answer["sizes"]["dim"] == 32
    # Three quarters of two heads is no number of heads.
    assert [m["name"] for m in answer["mechanisms"] if m["costs"] is None] == ["lsqa"]
    row = next(line for line in mechanisms_lines(SIZES, None) if line.plain.startswith("lsqa"))
    assert row.plain.split()[1:4] == ["-", "-", "-"]
    one = mechanisms_answer(SIZES, MECHANISMS["sqa"])
    assert one == {"sizes": answer["sizes"]} | items["sqa"]
    assert one["reading"].startswith(one["about"])


def test_table_fits_any_terminal_and_is_useful_at_80_columns() -> None:
    """On a wide terminal a mechanism is one line, else its formula stands below."""
    for width in (40, 60, 80, 120, 220, None):
        lines = [line.plain for line in mechanisms_lines(SIZES, width)]
        assert width is None or max(map(len, lines)) <= width
        if width in (40, 60):
            continue
        words = " ".join("\n".join(lines).split())
        assert "…" not in words
        for found in MECHANISMS.values():
            assert found.paper in words
            assert " ".join(formula(found.genome).split()) in words
        is_wide = width in (220, None)
        assert (len(lines) == 1 + len(MECHANISMS)) == is_wide
