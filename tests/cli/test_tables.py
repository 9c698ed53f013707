"""``nas table`` and benchmarks/tabulate: tables are made, continued, shown and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tabulate import tabulate
from nas.common.errors import TableError
from nas.searching.tabular.table import Table
from tests.cli.conftest import TINY

SMALL = """
name: small
nodes: {max: 3}
primitives: {scaled_dot_product: {}, softmax: {}, uniform: {}, weighted_sum: {}}
projections: {has_wv: [true, false], has_wo: [true, false]}
"""


def test_table_is_made_shown_and_compared(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    more = TINY.replace("epochs: 1", "epochs: 2").replace("heads: 2", "heads: 4")
    Path("more.yaml").write_text(more.replace("tiny", "more"))  # other sizes
    Path("small.yaml").write_text(SMALL)

    def make(path: str, task: str, num: int, seeds: int) -> Table:
        limits = {"seeds": seeds, "limit": num}
        return tabulate("small.yaml", Path(path), task=task, backend="local", **limits)

    make("a.json.gz", "tiny.yaml", 3, 1)
    assert len(Path("a.jsonl").read_text().splitlines()) == 3
    made = make("a.json.gz", "tiny.yaml", 12, 2)
    assert (len(made.mechanisms), made.repeats) == (12, 2)
    assert len(Path("a.jsonl").read_text().splitlines()) == 24  # three are not repeated
    shown = nas("table", "a.json.gz").out
    assert all(fact in shown for fact in ("12 mechanisms of small", "hardware", "front"))
    answer = json.loads(nas("table", "a.json.gz", "--json").out)
    front = answer["front"]
    accuracies = [row["accuracy"]["mean"] for row in front]
    macs = [row["costs"]["macs"] for row in front]
    assert accuracies == sorted(accuracies)
    assert macs == sorted(macs)
    assert (answer["mechanisms"], answer["repeats"], answer["failed"]) == (12, 2, 0)

    genome, key = Path("genome.json"), front[0]["key"]
    genome.write_text(json.dumps(made.mechanisms[key].to_dict()))
    [found] = json.loads(nas("table", "a.json.gz", genome, "--json").out)["found"]
    assert found["key"] == key
    assert [len(training["reports"]) for training in found["trainings"]] == [1, 1]
    assert f"{key[:8]}, accuracy % after each epoch" in nas("table", "a.json.gz", genome).out

    # The same mechanisms at other sizes, under other keys there.
    names = [f"{i}.json" for i in range(12)]
    for name, mechanism in zip(names, made.mechanisms.values(), strict=True):
        Path(name).write_text(json.dumps(mechanism.to_dict()))
    longer = {"task": "more.yaml", "seeds": 2, "backend": "local"}
    tabulate("small.yaml", Path("b.json.gz"), names[:11], **longer)
    compared = json.loads(nas("table", "a.json.gz", "--against", "b.json.gz", "--json").out)
    assert compared["shared"] == 11
    scores = [agreement["score"] for agreement in compared["agreements"]]
    assert scores == [
        "accuracy", "log_loss", "train_loss", "macs", "params", "another long training"
    ]  # fmt: skip
    assert "tau of the upper half" in nas("table", "a.json.gz", "--against", "b.json.gz").out

    missing = nas("table", "a.json.gz", "qana")
    assert missing.status == 2
    assert "table a holds no mechanism" in missing.err
    with pytest.raises(TableError, match="ends in"):
        make("a.json", "tiny.yaml", 3, 1)
