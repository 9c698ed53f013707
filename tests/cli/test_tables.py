"""A table is made, stopped, made further, looked at and compared, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nas.searching.tabular.table import load_table
from tests.cli.test_confirm import TINY

LOCAL = ("--backend", "local")
SMALL = """
name: small
nodes: {max: 3}
primitives: {scaled_dot_product: {}, softmax: {}, uniform: {}, weighted_sum: {}}
projections: {has_wv: [true, false], has_wo: [true, false]}
"""


def test_a_table_is_made_and_tells_what_it_holds(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    more = TINY.replace("epochs: 1", "epochs: 2").replace("heads: 2", "heads: 4")
    Path("more.yaml").write_text(more.replace("tiny", "more"))  # of other sizes
    Path("small.yaml").write_text(SMALL)
    space = ("--space", "small.yaml", *LOCAL)

    def make(path: str, task: str, num: int, seeds: int) -> Any:
        return nas("tabulate", *space, "--task", task, "--limit", num, "--seeds", seeds, "-o", path)

    assert make("a.json.gz", "tiny.yaml", 3, 1).err.count("accuracy") == 3
    made = make("a.json.gz", "tiny.yaml", 12, 2)
    assert made.err.count("accuracy") == 24  # all are told, three of them from the file
    assert made.out == "a.json.gz: 12 mechanisms, 2 trainings of each.\n"
    assert len(Path("a.jsonl").read_text().splitlines()) == 24
    told = nas("table", "a.json.gz")
    for word in ("12 mechanisms of small", "hardware", "front"):
        assert word in told.out
    answer = json.loads(nas("table", "a.json.gz", "--json").out)
    front = answer["front"]
    accuracies = [row["accuracy"]["mean"] for row in front]
    macs = [row["costs"]["macs"] for row in front]
    assert accuracies == sorted(accuracies)
    assert macs == sorted(macs)
    assert (answer["mechanisms"], answer["repeats"], answer["failed"]) == (12, 2, 0)

    genome = Path("genome.json")
    own = json.loads(nas("table", "a.json.gz", "--json").out)["front"][0]["key"]
    genome.write_text(json.dumps(load_table("a.json.gz").mechanisms[own].to_dict()))
    [found] = json.loads(nas("table", "a.json.gz", genome, "--json").out)["found"]
    assert found["key"] == own
    assert [len(one["reports"]) for one in found["trainings"]] == [1, 1]
    assert f"{own[:8]}, accuracy % after each epoch" in nas("table", "a.json.gz", genome).out

    # The same mechanisms at other sizes, under other keys there.
    names = []
    for i, one in enumerate(load_table("a.json.gz").mechanisms.values()):
        names.append(f"{i}.json")
        Path(names[-1]).write_text(json.dumps(one.to_dict()))
    longer = ("--task", "more.yaml", "--seeds", 2, "-o", "b.json.gz")
    assert nas("tabulate", *names[:11], *space, *longer).status == 0
    compared = json.loads(nas("table", "a.json.gz", "--against", "b.json.gz", "--json").out)
    assert compared["shared"] == 11
    scores = [one["score"] for one in compared["agreements"]]
    assert scores == [
        "accuracy", "log_loss", "train_loss", "macs", "params", "another long training"
    ]  # fmt: skip
    assert "tau of the upper half" in nas("table", "a.json.gz", "--against", "b.json.gz").out

    missing = nas("table", "a.json.gz", "qana")
    assert missing.status == 2
    assert "table a holds no mechanism" in missing.err
    unnamed = make("a.json", "tiny.yaml", 3, 1)
    assert unnamed.status == 2
    assert "expected a name that ends in .json.gz" in unnamed.err


def test_given_mechanisms_alone_are_trained(
    nas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    Path("small.yaml").write_text(SMALL)
    space = ("--space", "small.yaml", "--task", "tiny.yaml", "--seeds", 1, *LOCAL)
    assert "2 mechanisms" in nas("tabulate", "mha", "uniform", *space, "-o", "a.json.gz").out
    refused = nas("tabulate", "qana", *space, "-o", "b.json.gz")
    assert refused.status == 2
    assert "is not in the space small" in refused.err
