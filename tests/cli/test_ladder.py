"""``nas ladder``: mechanisms at several sizes of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.common.system import processor_name
from nas.genome.mechanisms import mechanism
from tests.cli.conftest import DIVERGING, LOCAL, MODULE

TEXT = """
name: shorttext
kind: bytes
width: 32
heads: 4
length: 8
epochs: 1
batch_size: 8
train_examples: 80
validation_examples: 16
learning_rate: 0.005
learning_rates: [0.005, 0.01]
"""


@pytest.fixture(autouse=True)
def _at_text(at_folder: Path) -> None:
    Path("short.yaml").write_text(TEXT)
    Path("mine.py").write_text(MODULE)


def test_mechanisms_and_modules_climb_and_are_not_trained_twice(nas: Any) -> None:
    Path("finds").mkdir()
    Path("finds/narrow.json").write_text(mechanism("gqa").genome.to_json())
    sources = ("mine.py:Linear", "finds/narrow.json")
    command = ("ladder", *sources, "--task", "short.yaml", "--seeds", 2, *LOCAL)
    done = nas(*command, "--sizes", "1/4,1,4", "--plot", "ladder.svg", "--json")
    assert done.status == 0, done.err
    answer = json.loads(done.out)
    names = ["mha", "mine.py:Linear", "narrow"]
    assert [rung["mechanism"] for rung in answer["rungs"]] == 3 * names
    flops = [rung["flops"] for rung in answer["rungs"][::3]]
    assert flops == sorted(flops)
    assert 8 < flops[-1] / flops[0] < 32
    for rung in answer["rungs"]:
        assert rung["cell"]["learning_rate"] in (0.005, 0.01)
        assert (rung["speedup"] is None) == (rung["mechanism"] == "mha")
        assert len(rung["cell"]["values"]) == 2
    assert {*answer["climbs"]} == {*names[1:]}
    assert "narrow" in (picture := Path("ladder.svg").read_text())
    assert "finds/" not in picture + done.out + done.err
    assert "[1/at most 72] shorttext" in done.err
    assert done.err.count("timing steps of all mechanisms in turns") == 3

    again = json.loads(nas(*command, "--sizes", "1/4,1,4", "--json").out)
    assert again["comparison"] == answer["comparison"]
    assert again["rungs"][-1]["time"] != answer["rungs"][-1]["time"]  # measured anew, in turns


@pytest.mark.parametrize("sizes", ["1,2", "4,1,2", "0,1,2", "1,1.01,1.02"])
def test_sizes_that_are_no_ladder_are_refused(nas: Any, sizes: str) -> None:
    refused = nas("ladder", "gqa", "--task", "short.yaml", "--sizes", sizes, *LOCAL)
    assert refused.status == 2
    assert "sizes: " in refused.err


def test_failures_leave_no_statement_and_no_picture(nas: Any) -> None:
    Path("bad.py").write_text(DIVERGING)
    options = ("--task", "short.yaml", "--sizes", "1/4,1,4", "--no-rates", "--seeds", 2, *LOCAL)
    some = nas("ladder", "bad.py:Linear", "gqa", *options, "--plot", "some.svg")
    assert some.status == 0, some.err
    assert "bad.py:Linear: no statement on its change with size" in some.out
    assert "2 trainings failed" in some.out
    assert "gqa: " in some.out
    assert "mha: loss = " in some.out
    assert f"measured in turns on {processor_name()}" in " ".join(some.out.split())
    assert "<svg" in Path("some.svg").read_text()
    none = nas("ladder", "gqa", *options, "--seed", 1, "--time-limit", 1e-6, "--plot", "none.svg")
    assert none.status == 1
    assert "time_limit" in none.out
    assert not Path("none.svg").exists()


def test_a_module_that_fails_while_steps_are_timed_ends_the_ladder_with_a_sentence(
    nas: Any,
) -> None:
    count = (
        "self.linear.calls = getattr(self.linear, 'calls', 0) + 1; assert self.linear.calls < 45"
    )
    Path("mine.py").write_text(MODULE.replace("return", f"{count}\n        return"))
    options = ("--task", "short.yaml", "--sizes", "1/4,1,4", "--no-rates", "--seeds", 2, *LOCAL)
    ended = nas("ladder", "mine.py:Linear", *options)
    assert ended.status == 2
    assert "training steps could not be timed: " in ended.err
    assert "AssertionError" in ended.err
    assert "Traceback" not in ended.err


def test_examples_of_generated_tasks_grow_with_the_size(nas: Any) -> None:
    fields = TEXT.replace("bytes", "recall").replace("length: 8", "pairs: 3\nnum_keys: 8")
    Path("recall.yaml").write_text(fields)
    options = ("--task", "recall.yaml", "--sizes", "1/4,1,4", "--no-rates", "--seeds", 2, *LOCAL)
    done = nas("ladder", "uniform", *options, "--json")
    assert done.status == 0, done.err
    flops = [rung["flops"] for rung in json.loads(done.out)["rungs"][::2]]
    assert flops[-1] / flops[0] > 6  # the weights alone grow fourfold


def test_the_reference_alone_is_refused(nas: Any) -> None:
    refused = nas("ladder", "mha", "--task", "short.yaml", *LOCAL)
    assert refused.status == 2
    assert "number of mechanisms, with the reference: found 1" in refused.err
