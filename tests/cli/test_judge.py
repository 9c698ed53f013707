"""``nas judge``: pairs of trainings until one mechanism is shown to be better."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nas.api import judging
from nas.common import sequential
from nas.store.writer import RunRecord
from tests.cli.conftest import DIVERGING, LOCAL

UNIFORM = ("judge", "uniform", "--task", "tiny.yaml", *LOCAL)

pytestmark = pytest.mark.usefixtures("at_tasks")


def parts(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of the reference and of the judged mechanism."""
    return [row["parts"]["tiny"] for row in answer["comparison"]["rows"]]


def test_judgement_stops_at_its_budget_and_continues_from_its_record(nas: Any) -> None:
    command = (*UNIFORM, "--record", "record.sqlite", "--json")
    first = nas(*command, "--pairs", 2)
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    assert (answer["verdict"], answer["pairs"]) == ("undecided", 2)
    assert (answer["place"], answer["places"], answer["needed"]) == (1, 50, 2000)
    mha, uniform = parts(answer)
    assert uniform["costs"]["macs"] < mha["costs"]["macs"]
    longer = json.loads(nas(*command, "--pairs", 3).out)
    mha, uniform = parts(longer)
    assert uniform["values"][:2] == parts(answer)[1]["values"]
    with RunRecord([], "record.sqlite") as record:
        assert len(record.trainings("evaluate")) == 6
    gains = [a - b for a, b in zip(uniform["values"], mha["values"], strict=True)]
    assert longer["difference"]["mean"] == pytest.approx(sum(gains) / 3)


def test_judgement_without_a_record_continues_too(nas: Any) -> None:
    first = nas(*UNIFORM, "--pairs", 2, "--json")
    assert "continues" not in first.err
    longer = nas(*UNIFORM, "--pairs", 3, "--json")
    assert "nas: continues a judgement of 4 trainings, stored in runs/judgements/" in longer.err
    before, after = json.loads(first.out), json.loads(longer.out)
    assert parts(after)[1]["values"][:2] == parts(before)[1]["values"]
    assert (after["pairs"], after["places"], after["needed"]) == (3, 1, 40)
    (file,) = Path("runs/judgements").glob("*.sqlite")
    with RunRecord([], file) as record:
        assert len(record.trainings("evaluate")) == 6


def test_judgement_stops_when_its_claim_is_decided(nas: Any) -> None:
    answer = json.loads(nas(*UNIFORM, "--pairs", 40, "--json").out)
    mha, uniform = (part["values"] for part in parts(answer))
    gains = [a - b for a, b in zip(uniform, mha, strict=True)]
    ends = [sequential.decide(gains[:n], "typical", 1.0).verdict for n in range(1, len(gains) + 1)]
    assert {*ends[:-1]} <= {"undecided"}
    assert answer["verdict"] == ends[-1] == answer["claims"]["typical"]["verdict"]
    assert answer["verdict"] != "undecided" or len(gains) == 40
    about_mean = json.loads(nas(*UNIFORM, "--claim", "mean", "--pairs", 2, "--json").out)
    assert about_mean["verdict"] == about_mean["claims"]["mean"]["verdict"] == "undecided"
    assert nas(*UNIFORM, "--claim", "median").status == 2


def test_a_module_that_diverges_at_every_seed_is_worse(nas: Any) -> None:
    Path("mine.py").write_text(DIVERGING)
    learns = Path("tiny.yaml").read_text().replace("epochs: 1", "epochs: 20")
    rates = "\nlearning_rate: 0.003\nlearning_rates: [0.001, 0.003]\n"
    Path("learns.yaml").write_text(learns.replace("name: tiny", "name: learns") + rates)
    result = nas("judge", "mine.py:Linear", "--task", "learns.yaml", "--pairs", 12, *LOCAL)
    assert result.status == 0, result.err
    assert "trainings failed, diverged" in result.out
    assert "mine.py:Linear under learns: worse than mha at a typical seed" in result.out
    assert "A failed training counts as one that learned nothing" in result.out
    pairs, further = (
        int(found[1])
        for text in (r"seed, after (\d+) pairs", r"further seeds; (\d+) trainings")
        if (found := re.search(text, result.out))
    )
    # Two seeds at both rates of both; in the end the module at its other rate.
    assert further == 2 * 2 * 2 + pairs
    limited = nas(*UNIFORM, "--time-limit", 1e-6, "--pairs", 2)
    assert limited.status == 1
    assert "time_limit" in limited.out
    assert "no training of mha succeeded" in limited.out


def test_record_counts_mechanisms_and_is_full_in_the_end(
    nas: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "PLACES", 2)
    judge = ("--task", "tiny.yaml", "--pairs", 1, "--record", "r.sqlite", "--json", *LOCAL)
    places = [
        json.loads(nas("judge", name, *judge).out)["place"]
        for name in ("uniform", "gqa:kv_heads=one", "uniform")
    ]
    assert places == [1, 2, 1]
    full = nas("judge", "patterns_and_messages", *judge)
    assert full.status == 2
    assert "r.sqlite: holds trainings of 2 other mechanisms" in full.err


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        ("judge mha --task tiny.yaml", "mha and mha are the same mechanism"),
        ("judge uniform --task tiny.yaml --against nothing", "nothing"),
    ],
)
def test_arguments_are_refused(nas: Any, command: str, fact: str) -> None:
    result = nas(*command.split(), *LOCAL)
    assert result.status == 2
    assert fact in result.err
