"""Bytes of a text: windows, validation, and that standard attention beats ``uniform``."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from nas.common.errors import DataError
from nas.evaluation.trainer import train_candidate
from nas.evaluation.trial import Trial
from nas.genome.mechanisms import mechanism
from nas.tasks import load_task
from nas.tasks.sequences.stories import synthetic_stories

CPU = torch.device("cpu")
TEXT = bytes(range(200)) * 10


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "text.bin"
    found.write_bytes(TEXT)
    return found


def test_bytes_train_on_nine_tenths_and_evaluate_the_rest(path):
    task = load_task("bytes", data=f"file:{path}", overrides={"length": 16})
    data = task.load()
    assert data.train["text"].tobytes() == TEXT[:1800]
    rows = data.validation["rows"]
    assert rows.shape == (184, 17)  # as many places as there are
    assert all(row.tobytes() in TEXT[1800:] for row in rows)
    few = task.model_copy(update={"validation_examples": 3}).load().validation["rows"]
    assert [row[0] for row in few] == [0, 91, 183]


def test_a_batch_is_windows_and_their_next_bytes(path):
    task = load_task("bytes", data=f"file:{path}", overrides={"length": 16})
    data = task.load()
    windows = task.examples(data, "train", CPU, torch.float32)
    assert len(windows) == 1800 - 16
    shown, following = windows.batch(torch.tensor([0, 150, len(windows) - 1]))
    assert bytes(shown[1].tolist()) == TEXT[150:166]
    assert bytes(following[1].tolist()) == TEXT[151:167]
    assert bytes(following[2].tolist()) == TEXT[1784:1800]
    order = task.order(data, 1, torch.Generator().manual_seed(0))
    assert (len(order), int(order.max())) == (4400, len(windows) - 1)


def test_chance_of_bytes_knows_their_frequencies(path):
    task = load_task("bytes", data=f"file:{path}")
    bits, accuracy = task.metrics(task.load())
    assert (bits.name, bits.direction, bits.unit) == ("bits_per_byte", "min", "bit")
    assert bits.chance == pytest.approx(math.log2(200), abs=0.05)
    assert accuracy.chance <= 0.02


@pytest.mark.parametrize(
    ("name", "words"),
    [("short.txt", "expected at least"), ("none.txt", "No such file"), ("", "Is a directory")],
)
def test_unusable_text_is_an_error(tmp_path, name, words):
    (tmp_path / "short.txt").write_bytes(b"short")
    with pytest.raises(DataError, match=words):
        load_task("bytes", data=f"file:{tmp_path / name}").load()


@pytest.mark.parametrize("kind", ["synthetic", "file"])
def test_a_text_has_no_test_set(path, kind):
    spec = "synthetic" if kind == "synthetic" else f"file:{path}"
    with pytest.raises(DataError, match=f"task 'bytes' has no test set with data {spec}"):
        load_task("bytes", data=spec).load_test()


def test_synthetic_stories_answer_their_questions():
    text = synthetic_stories(0, 20_000).decode()
    assert text == synthetic_stories(0, 20_000).decode() != synthetic_stories(1, 20_000).decode()
    for story in text.splitlines()[:-1]:
        facts, _, question = story.partition(" What has ")
        who, thing = question.split("?")[0], question.split("A ")[1].split(".")[0]
        assert f"{who} has a {thing}." in facts


@pytest.mark.slow
@pytest.mark.parametrize(("task", "gap"), [("bytes", 0.02), ("bytes-quick", 0.05)])
@pytest.mark.parametrize("seed", range(2))
def test_attention_beats_uniform_on_synthetic_stories(task, gap, seed):
    task = load_task(task)
    data = task.load()
    mha, uniform = (
        train_candidate(Trial("key", mechanism(name).genome, seed), task, data)
        for name in ("mha", "uniform")
    )
    bits = uniform.metrics["bits_per_byte"]
    assert mha.metrics["bits_per_byte"] + gap < bits < task.metrics(data)[0].chance
