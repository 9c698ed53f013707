"""Costs as tables; what `nas cost` prints and answers is in tests/cli."""

from __future__ import annotations

import json

from nas.costs import attention_cost
from nas.genome.mechanisms import MECHANISMS
from nas.report.costs import Sizes, mechanisms_table, show_mechanisms

from .conftest import Printed

SMALL = Sizes(dim=32, heads=2, tokens=17)


def test_mechanisms_have_costs_where_they_exist(pipe: Printed) -> None:
    rows = json.loads(json.dumps(mechanisms_table(SMALL).records()))
    items = {item["name"]: item for item in rows}
    assert list(items) == list(MECHANISMS)
    expected = attention_cost(MECHANISMS["mha"].genome, dim=32, heads=2, tokens=17)
    assert items["mha"].items() >= expected.items()
    # Three quarters of two heads is no number of heads.
    assert [name for name, item in items.items() if item["macs"] is None] == ["lsqa"]
    show_mechanisms(pipe.console, SMALL)
    row = next(line for line in pipe.lines if line.startswith("lsqa"))
    assert row.split()[1:4] == ["-", "-", "-"]
    assert items["sqa"]["reading"].startswith(items["sqa"]["about"])
