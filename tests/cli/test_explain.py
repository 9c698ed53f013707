"""``nas explain``: real trainings of a small task, what a record keeps, and what is refused."""

from __future__ import annotations

import json

import pytest

from nas.common.errors import RunError
from nas.store import open_run, record

TINY = """
name: tiny
kind: images
data: digits
image_size: 8
patch: 2
width: 16
depth: 1
heads: 2
epochs: 1
train_images: 64
validation_images: 50
"""


def answers_of(folder, command):
    with open_run(folder) as run:
        return [*run.answers(command)]


def refuse(*_):
    raise RunError("the disk is full.")


def test_explain_trains_edits_path_and_controls(nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)
    given = (
        "explain", "mha:window=4", "--task", "tiny.yaml", "--seeds", 2, "--most-seeds", 3,
        "--backend", "local", "--record", "kept.jsonl",
    )  # fmt: skip
    first = nas(*given, "--json")
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    assert (answer["seeds"], answer["task"]) == ([2, 3], "tiny")
    edits = {row["words"]: row for row in answer["edits"]}
    window = edits["without window of 4"]
    assert window["formula"] == "(softmax((Q·Kᵀ)/√d)·V)·W_O"
    assert window["verdict"] in {"needed", "harmless", "harmful", "unresolved"}
    gains = [a - b for a, b in zip(window["values"], answer["values"], strict=False)]
    assert window["difference"]["mean"] == pytest.approx(sum(gains) / len(gains))
    assert edits["without W_Q"]["added_costs"]["params"] == -(16**2)
    assert edits["without W_Q"]["added_costs"]["time_ms"] < 0
    [step] = answer["path"]
    assert (step["words"], step["id"]) == ("with window of 4", answer["id"])
    assert step["difference"]["mean"] == -window["difference"]["mean"]
    assert answer["controls"][0]["words"] == "mha"
    kept = (tmp_path / "kept.jsonl").read_text().splitlines()
    again = nas(*given)
    assert again.status == 0, again.err
    assert (tmp_path / "kept.jsonl").read_text().splitlines() == kept
    assert f"[{len(kept)}/{len(kept)}]" in again.err
    assert "From mha to mha:window=4, each step beside the one before" in again.out
    assert "after 2 and 3 seeds" in again.out


def test_explain_takes_task_data_and_policy_of_a_run(nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)
    local = ("--backend", "local")
    options = ("--gens", 1, "--pop", 2, "--run", "a", "--algorithm", "random")
    nas("search", "--space", "quickstart", "--task", "tiny.yaml", *options, *local)
    found = nas("explain", "a/best", "--seeds", 2, *local, "--json")
    assert found.status == 0, found.err
    answer = json.loads(found.out)
    front = json.loads(nas("front", "a", "--json").out)
    assert answer["id"] == front["members"][0]["id"]
    assert (answer["task"], len(answer["values"])) == ("tiny", 2)
    assert answers_of(tmp_path / "runs" / "a", "explain") == [answer]
    assert nas("report", "a", "-o", "a.html").status == 0
    assert "Edits of " in (tmp_path / "a.html").read_text()
    given = ("--tasks", "tiny.yaml", "--seeds", 2, *local, "--json")
    compared = json.loads(nas("benchmark", "a/best", *given).out)
    assert compared["mechanisms"][1]["id"] == answer["id"]
    assert answers_of(tmp_path / "runs" / "a", "benchmark") == [compared]
    with open_run(tmp_path / "runs" / "a") as run:
        trained = len(run.trainings("explain"))
        assert trained == len({(t.key, t.repeat) for t in run.trainings("explain")}) >= 4
    monkeypatch.setattr(record, "append_answer", refuse)
    again = nas("explain", "a/best", "--seeds", 2, *local, "--json")
    assert (again.status, json.loads(again.out)["id"]) == (0, answer["id"])
    assert "the answer cannot be kept for the run's report" in again.err.splitlines()[-1]
    with open_run(tmp_path / "runs" / "a") as run:
        assert len(run.trainings("explain")) == trained
    again = nas("benchmark", "a/best", *given)
    told = json.loads(again.out)["mechanisms"][1]
    assert (again.status, told["id"]) == (0, answer["id"])
    assert "the answer cannot be kept for the run's report" in again.err.splitlines()[-1]
    lost = nas("explain", "a/best", "--data", "imagefolder:nowhere", *local)
    assert "nowhere" in lost.err


def test_explain_where_nothing_could_be_trained(nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)
    given = ("--task", "tiny.yaml", "--seeds", 2, "--backend", "local", "--time-limit", 1e-6)
    found = nas("explain", "uniform", *given)
    assert found.status == 1
    assert "without W_V: 2 of 2 failed, time_limit" in found.out
    assert "needed  " not in found.out


def test_explain_refuses_what_cannot_be(nas):
    assert "expected a number from seeds, 5," in nas("explain", "mha", "--most-seeds", 4).err
    assert (
        "expected a number above 0"
        in nas("explain", "mha", "--task", "copying", "--margin", "nan").err
    )
    assert "3/4 of 2" in nas("explain", "lsqa", "--task", "copying").err
    assert "is made of several" in nas("explain", "mha", "--task", "bytes-and-recall").err
