"""Costs as tables; what `nas cost` prints and answers is in tests/cli."""

from __future__ import annotations

import dataclasses
import json

from nas.costs import Cost, attention_cost
from nas.genome.mechanisms import MECHANISMS
from nas.report.costs import (
    Sizes,
    count_costs,
    mechanisms_answer,
    mechanisms_lines,
    price,
    show_costs,
    show_price,
)
from nas.store.sources import resolve

from .conftest import Printed

SMALL = Sizes(dim=32, heads=2, tokens=17)


def test_parameters_that_depend_on_the_length_are_a_range(pipe: Printed) -> None:
    table = count_costs([resolve("mha")], 16, 4, [16, 8])
    short, long = table.rows
    assert (short.tokens, long.tokens) == (8, 16)
    grown = dataclasses.replace(long, cost=Cost(long.cost.to_dict() | {"params": 9_999}))
    show_costs(pipe.console, dataclasses.replace(table, rows=(short, grown)))
    assert f"{short.cost.params:,} to 9,999" in pipe.text


def test_a_block_is_compared_with_standard_attention(pipe: Printed) -> None:
    sizes = Sizes(64, 4, 65)
    priced = price(MECHANISMS["ssqa"].genome, sizes)
    assert priced.cost is not None
    show_price(pipe.console, priced, sizes, "ssqa")
    standard = attention_cost(MECHANISMS["mha"].genome, dim=64, heads=4, tokens=65)
    row = next(line for line in pipe.lines if "MACs" in line)
    assert f"{priced.cost.macs / standard.macs:.2f} × mha" in row


def test_mechanisms_answer_has_costs_where_a_mechanism_exists() -> None:
    answer = json.loads(json.dumps(mechanisms_answer(SMALL)))
    items = {item["name"]: item for item in answer["mechanisms"]}
    assert list(items) == list(MECHANISMS)
    expected = attention_cost(MECHANISMS["mha"].genome, dim=32, heads=2, tokens=17)
    assert items["mha"]["costs"] == expected.to_dict()
    assert answer["sizes"]["dim"] == 32
    # Three quarters of two heads is no number of heads.
    assert [m["name"] for m in answer["mechanisms"] if m["costs"] is None] == ["lsqa"]
    row = next(line for line in mechanisms_lines(SMALL, None) if line.plain.startswith("lsqa"))
    assert row.plain.split()[1:4] == ["-", "-", "-"]
    one = mechanisms_answer(SMALL, MECHANISMS["sqa"])
    assert one == {"sizes": answer["sizes"]} | items["sqa"]
    assert one["reading"].startswith(one["about"])
