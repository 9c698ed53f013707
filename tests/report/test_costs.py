"""Costs as tables and as JSON: what was counted, and what was measured beside it."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from nas.costs import attention_cost
from nas.measurement import Reading
from nas.mechanisms import MECHANISMS
from nas.report.costs import SHORT, Block, Costed, cost_answer, costed, digits, show_costs
from nas.sources import resolve

LENGTHS = (8, 16)


@pytest.fixture(scope="module")
def found() -> list[Costed]:
    return costed([resolve("mha"), resolve("sqa")], Block(16, 4, LENGTHS))


@pytest.fixture
def measured() -> Block:
    """mha takes tokens milliseconds and MiB; sqa does not fit at 16 tokens."""
    readings = {
        (name, n, direction): None
        if (name, n) == ("sqa", 16)
        else Reading((float(n), 1.5 * n, 1.25 * n), n * 2**20)
        for name in ("mha", "sqa")
        for n in LENGTHS
        for direction in SHORT
    }
    return Block(16, 4, LENGTHS, "cpu", 3, readings)


def printed(found: list[Costed], block: Block) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=200)
    show_costs(console, found, block)
    assert isinstance(console.file, io.StringIO)
    return [line.split() for line in console.file.getvalue().splitlines()]


def test_counts_are_those_of_the_cost_room(found: list[Costed]) -> None:
    genome = MECHANISMS["sqa"].genome
    assert found[1].costs[16] == attention_cost(genome, dim=16, heads=4, tokens=16)


def test_one_length_is_answered_plainly(found: list[Costed]) -> None:
    cost = found[0].costs[8].to_dict()
    assert cost_answer(found[:1], Block(16, 4, (8,))) == cost
    assert cost_answer(found, Block(16, 4, (8,))) == [cost, found[1].costs[8].to_dict()]


def test_what_was_measured_stands_beside_what_was_counted(
    found: list[Costed], measured: Block
) -> None:
    answers = cost_answer(found, measured)
    figures = {"ms": 8.0, "spread": 0.25, "peak_memory_bytes": 8 * 2**20}
    assert answers[0]["macs"] == found[0].costs[8].macs
    assert answers[0]["measured"] == {
        "device": "cpu",
        "rounds": 3,
        "forward": figures,
        "forward_backward": figures,
    }
    assert answers[3]["measured"]["forward"] is None


def test_tables_of_several_lengths(found: list[Costed]) -> None:
    lines = printed(found, Block(16, 4, LENGTHS))
    assert ["mechanism", "8", "16"] in lines
    assert ["mha", "10.2", "k", "24.6", "k"] in lines
    assert ["sqa", "400", "16"] in lines


def test_a_table_for_each_length_says_what_did_not_fit(
    found: list[Costed], measured: Block
) -> None:
    lines = printed(found, measured)
    mha = ["mha", "10.2", "k", "8.00", "+25%", "8.00", "8.00", "+25%", "8.00"]
    assert mha in lines
    out = ["out", "of", "memory"]
    assert ["sqa", "10.2", "k", *out, "-", "-", *out, "-", "-"] in lines
    words = " ".join(word for line in lines for word in line)
    assert "the fastest of 3 interleaved rounds" in words


def test_parameters_that_depend_on_the_length_are_a_range(found: list[Costed]) -> None:
    costs = found[0].costs
    grown = dataclasses.replace(costs[16], params=9_999)
    one = dataclasses.replace(found[0], costs={8: costs[8], 16: grown})
    text = " ".join(" ".join(line) for line in printed([one], Block(16, 4, LENGTHS)))
    assert f"{costs[8].params:,} to 9,999" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (1.0, "1.00"), (99.96, "100"), (123.4, "123"), (12345.6, "12,300")],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert digits(value) == text
