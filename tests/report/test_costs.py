"""Costs as tables; what `nas cost` prints and answers is in tests/cli."""

from __future__ import annotations

import json

from nas.costs import attention_cost
from nas.genome.mechanisms import MECHANISMS
from nas.report.costs import (
    Sizes,
    count_costs,
    mechanisms_answer,
    price,
    show_costs,
    show_mechanisms,
    show_price,
)
from nas.store.sources import resolve

from .conftest import Printed

SMALL = Sizes(dim=32, heads=2, tokens=17)


def test_costs_are_one_table_of_mechanisms_and_lengths(pipe: Printed) -> None:
    table = count_costs([resolve("mha"), resolve("sqa")], 16, 4, [16, 8, 8])
    assert [*zip(table.table.name, table.table.tokens, strict=True)] == [
        ("mha", 8),
        ("mha", 16),
        ("sqa", 8),
        ("sqa", 16),
    ]
    assert table.table.macs.tolist() == [row.cost.macs for row in table.rows]
    assert json.loads(json.dumps(table.to_dict()))["rows"] == table.table.to_dict("records")
    show_costs(pipe.console, table)
    assert [line.split()[:2] for line in pipe.lines[3:]] == [
        ["mha", "8"],
        ["mha", "16"],
        ["sqa", "8"],
        ["sqa", "16"],
    ]


def test_a_block_is_compared_with_standard_attention(pipe: Printed) -> None:
    sizes = Sizes(64, 4, 65)
    priced = price(MECHANISMS["ssqa"].genome, sizes)
    assert priced.cost is not None
    show_price(pipe.console, priced, sizes, "ssqa")
    standard = attention_cost(MECHANISMS["mha"].genome, dim=64, heads=4, tokens=65)
    row = next(line for line in pipe.lines if "MACs" in line)
    assert f"{priced.cost.macs / standard.macs:.2f} × mha" in row


def test_mechanisms_have_costs_where_they_exist(pipe: Printed) -> None:
    answer = json.loads(json.dumps(mechanisms_answer(SMALL)))
    items = {item["name"]: item for item in answer["mechanisms"]}
    assert list(items) == list(MECHANISMS)
    expected = attention_cost(MECHANISMS["mha"].genome, dim=32, heads=2, tokens=17)
    assert items["mha"].items() >= expected.to_dict().items()
    assert answer["sizes"]["dim"] == 32
    # Three quarters of two heads is no number of heads.
    assert [name for name, item in items.items() if item["macs"] is None] == ["lsqa"]
    show_mechanisms(pipe.console, SMALL)
    row = next(line for line in pipe.lines if line.startswith("lsqa"))
    assert row.split()[1:4] == ["-", "-", "-"]
    one = mechanisms_answer(SMALL, MECHANISMS["sqa"])
    assert one == {"sizes": answer["sizes"]} | items["sqa"]
    assert one["reading"].startswith(one["about"])
