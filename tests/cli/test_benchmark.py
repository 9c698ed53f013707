"""``nas benchmark``: several tasks, what a record keeps, and what is refused."""

from __future__ import annotations

import json

TINY = """
name: {name}
kind: {kind}
width: 8
depth: 1
heads: 2
epochs: 1
train_examples: 16
validation_examples: 8
batch_size: 8
"""


def test_benchmark_trains_under_each_task_once(nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("induction", "copying"):
        (tmp_path / f"{kind}.yaml").write_text(TINY.format(name=f"tiny-{kind}", kind=kind))
    given = (
        "benchmark", "uniform", "patterns_and_messages", "--tasks", "induction.yaml,copying.yaml",
        "--seeds", 2, "--backend", "local", "--record", "kept.jsonl",
    )  # fmt: skip
    first = nas(*given, "--json")
    assert first.status == 0, first.err
    answer = json.loads(first.out)
    assert answer["against"] == "mha"
    assert list(answer["tasks"]) == ["tiny-induction", "tiny-copying"]
    mha, uniform, _ = answer["mechanisms"]
    assert len(mha["tasks"]["tiny-copying"]["values"]) == 2
    assert uniform["tasks"]["tiny-induction"]["verdict"] in {"better", "worse", "undecided"}
    num_kept = len((tmp_path / "kept.jsonl").read_text().splitlines())
    again = nas(*given, "--json")
    assert json.loads(again.out) == answer
    assert len((tmp_path / "kept.jsonl").read_text().splitlines()) == num_kept
    shown = nas(*given)
    assert "tiny-copying: accuracy %, higher is better" in shown.out
    assert "[12/12]" in shown.err


def test_benchmark_leaves_out_what_does_not_exist_somewhere(nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copying.yaml").write_text(TINY.format(name="tiny", kind="copying"))
    given = ("benchmark", "lsqa", "--tasks", "copying.yaml", "--seeds", 1, "--backend", "local")
    found = nas(*given)
    assert found.status == 0, found.err
    assert "lsqa under tiny: " in found.out
    assert "3/4 of 2" in found.out


def test_benchmark_where_nothing_could_be_trained(nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copying.yaml").write_text(TINY.format(name="tiny", kind="copying"))
    given = ("--tasks", "copying.yaml", "--seeds", 2, "--backend", "local", "--time-limit", 1e-6)
    found = nas("benchmark", "uniform", *given)
    assert found.status == 1
    assert "uniform under tiny: 2 of 2 failed, time_limit" in found.out


def test_benchmark_refuses_data_for_a_task_that_is_not_asked_for(nas):
    wrong = nas("benchmark", "uniform", "--tasks", "recall", "--data", "bytes=file:here")
    assert wrong.status != 0
    assert "found bytes; expected tasks among recall" in wrong.err
    wrong = nas("benchmark", "uniform", "--data", "recall")
    assert "expected TASK=SPEC" in wrong.err
    wrong = nas("benchmark", "uniform", "--tasks", "recall, recall")
    assert "expected each once" in wrong.err
    given = ("--tasks", "recall,bytes", "--data", "bytes=file:/nowhere", "--backend", "local")
    wrong = nas("benchmark", "uniform", *given)  # before anything is trained
    assert "there is no such file" in wrong.err
    assert "[1/" not in wrong.err


def test_the_test_set_judges_where_it_is_asked_to(nas, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images.yaml").write_text(
        "name: tiny\nkind: images\ndata: digits\nwidth: 8\ndepth: 1\nheads: 2\nimage_size: 8\n"
        "patch: 4\nepochs: 1\ntrain_images: 64\nvalidation_images: 32\nbatch_size: 32\n"
    )
    given = ("evaluate", "uniform", "--task", "images.yaml", "--backend", "local", "--record", "r")
    held_out = json.loads(nas(*given, "--json").out)
    tested = json.loads(nas(*given, "--test", "--json").out)
    assert [held_out["test"], tested["test"]] == [False, True]
    scores = [answer["evaluations"][0]["objectives"] for answer in (held_out, tested)]
    assert scores[0] != scores[1]
    assert "Judged on the test set." in nas(*given, "--test").out
    answer = nas(
        "benchmark", "uniform", "--tasks", "images.yaml", "--seeds", 1, "--backend", "local",
        "--record", "r", "--test",
    )  # fmt: skip
    assert "[1/2] uniform, seed 0" in answer.err  # the record of `evaluate` had it
    assert "Judged on the test set." in answer.out
    (tmp_path / "copying.yaml").write_text(TINY.format(name="tiny", kind="copying"))
    refused = nas("evaluate", "uniform", "--task", "copying.yaml", "--backend", "local", "--test")
    assert refused.status == 2
    assert "has no test set" in refused.err
