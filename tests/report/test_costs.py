"""Costs as tables and as JSON."""

from __future__ import annotations

import dataclasses

import pytest

from nas.costs import attention_cost
from nas.mechanisms import MECHANISMS
from nas.report.costs import (
    Block,
    Costed,
    Sizes,
    cost_answer,
    costed,
    price,
    relative_columns,
    show_costs,
)
from nas.report.table import table_lines
from nas.sources import resolve

from .conftest import Printed

LENGTHS = (8, 16)


@pytest.fixture(scope="module")
def found() -> list[Costed]:
    return costed([resolve("mha"), resolve("sqa")], Block(16, 4, LENGTHS))


def printed(found: list[Costed], block: Block) -> list[list[str]]:
    pipe = Printed()
    show_costs(pipe.console, found, block)
    return [line.split() for line in pipe.lines]


def test_counts_are_those_of_nas_costs(found: list[Costed]) -> None:
    genome = MECHANISMS["sqa"].genome
    assert found[1].costs[16] == attention_cost(genome, dim=16, heads=4, tokens=16)


def test_one_length_is_answered_plainly(found: list[Costed]) -> None:
    cost = found[0].costs[8].to_dict()
    assert cost_answer(found[:1], Block(16, 4, (8,))) == cost
    assert cost_answer(found, Block(16, 4, (8,))) == [cost, found[1].costs[8].to_dict()]


def test_tables_of_several_lengths(found: list[Costed]) -> None:
    lines = printed(found, Block(16, 4, LENGTHS))
    assert ["mechanism", "8", "16"] in lines
    assert ["mha", "10.2", "k", "24.6", "k"] in lines
    assert ["sqa", "400", "16"] in lines


def test_parameters_that_depend_on_the_length_are_a_range(found: list[Costed]) -> None:
    costs = found[0].costs
    grown = dataclasses.replace(costs[16], params=9_999)
    one = dataclasses.replace(found[0], costs={8: costs[8], 16: grown})
    text = " ".join(" ".join(line) for line in printed([one], Block(16, 4, LENGTHS)))
    assert f"{costs[8].params:,} to 9,999" in text


def test_a_block_is_compared_with_standard_attention() -> None:
    sizes = Sizes(64, 4, 65)
    cost = price(MECHANISMS["ssqa"].genome, sizes).cost
    assert cost is not None
    lines = [line.plain for line in table_lines(relative_columns("ssqa", cost, sizes))]
    standard = attention_cost(MECHANISMS["mha"].genome, dim=64, heads=4, tokens=65)
    assert f"{cost.macs / standard.macs:.2f} × mha" in next(x for x in lines if "MACs" in x)


def test_what_does_not_exist_at_a_size_says_why() -> None:
    priced = price(MECHANISMS["lsqa"].genome, Sizes(heads=2))
    assert priced.cost is None
    assert "3/4 of 2 heads" in priced.problem
